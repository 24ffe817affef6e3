// What this program is: for --version, the log and the metrics.
#pragma once

#include <string>

namespace postern::gateway {

std::string version_number();       // "0.1.0"
std::string build_type();           // "Release"
std::string version_text();         // "0.1.0 Release gcc 12.2.0"

}  // namespace postern::gateway
