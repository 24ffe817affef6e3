#include "ring/base/result.hpp"

#include <system_error>

namespace postern {

Error os_error(int code, const std::string& what) {
    return Error{code, what + ": " + std::generic_category().message(code)};
}

}  // namespace postern
