// What a next hop offers, read from its answer to EHLO or LHLO (RFC 5321 §4.1.1.1).
#pragma once

#include <cstdint>
#include <string_view>

namespace postern::proto {

struct Capabilities {
    bool pipelining = false;            // RFC 2920
    bool eight_bit_mime = false;        // RFC 6152
    bool smtputf8 = false;              // RFC 6531
    bool chunking = false;              // RFC 3030
    bool binary_mime = false;           // RFC 3030
    bool size = false;                  // RFC 1870
    uint64_t bytes_max = 0;             // of a message; 0: no limit announced
};

// `text` is that of the reply: lines joined with '\n', the first being the greeting.  Keywords in any case; unknown
// ones are skipped; a SIZE value that is no number is no limit.
Capabilities parse_capabilities(std::string_view text);

}  // namespace postern::proto
