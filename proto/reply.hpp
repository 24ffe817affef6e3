// A reply of the server as a value (RFC 5321 §4.2, enhanced codes RFC 2034).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace postern::proto {

// `text` is a view: of a literal, or valid until the reply has been written.  `enhanced` is empty where none belongs
// (greeting, EHLO, 3xx).  A text with '\n' becomes a multi-line reply, the enhanced code on every line.
struct Reply {
    uint16_t code = 0;
    std::string_view enhanced;
    std::string_view text;

    bool positive() const { return code < 400; }
    bool transient() const { return code >= 400 && code < 500; }
};

// Appends the reply as it goes on the wire; lines are cut to 512 octets (§4.5.3.1.5); control octets become '?'.
void write_reply(std::string& out, const Reply& reply);

}  // namespace postern::proto
