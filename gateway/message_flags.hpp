// The flags that the gateway keeps beside a stored message (storage::MessageAttributes::flags).  Part of the format.
#pragma once

#include <cstdint>

namespace postern::gateway {

enum MessageFlag : uint16_t {
    flag_eight_bit = 1,             // octets above 127 were seen
    flag_dot_line = 2,              // a line begins with '.': must be stuffed for DATA
    flag_ends_with_crlf = 4,
};

}  // namespace postern::gateway
