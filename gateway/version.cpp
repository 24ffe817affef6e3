#include "gateway/version.hpp"

namespace postern::gateway {

std::string version_number() { return POSTERN_VERSION; }
std::string build_type() { return POSTERN_BUILD; }
std::string version_text() { return version_number() + " " + build_type() + " " + __VERSION__; }

}  // namespace postern::gateway
