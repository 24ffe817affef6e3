// Result: a value, or the reason why there is none.  Operating errors are values; exceptions only in start-up and config.
#pragma once

#include <string>
#include <tl/expected.hpp>

namespace postern {

// An operating error as the operator reads it: what failed, on what, why, and the remedy where one is known.
// `code` is the errno behind it, or 0.
struct Error {
    int code = 0;
    std::string text;
};

template <class Value, class Failure = Error>
using Result = tl::expected<Value, Failure>;

template <class Failure>
auto fail(Failure&& failure) {
    return tl::make_unexpected(std::forward<Failure>(failure));
}

// "cannot open /x/y: Permission denied"
Error os_error(int code, const std::string& what);

}  // namespace postern
