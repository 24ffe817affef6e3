#include "proto/reply.hpp"

#include <charconv>

namespace postern::proto {

namespace {

constexpr size_t line_bytes_max = 512;      // with CRLF (RFC 5321 §4.5.3.1.5)

void append_line(std::string& out, const Reply& reply, std::string_view text, bool last) {
    const size_t start = out.size();
    char digits[8];
    const auto end = std::to_chars(digits, digits + sizeof digits, reply.code).ptr;
    out.append(digits, end);
    const bool bare = text.empty() && reply.enhanced.empty();
    if (!last || !bare) out.push_back(last ? ' ' : '-');
    out.append(reply.enhanced);
    if (!reply.enhanced.empty() && !text.empty()) out.push_back(' ');

    const size_t used = out.size() - start;
    size_t room = used < line_bytes_max - 2 ? line_bytes_max - 2 - used : 0;
    if (text.size() > room) {
        // Not in the middle of a UTF-8 sequence.
        while (room > 0 && (static_cast<unsigned char>(text[room]) & 0xc0) == 0x80) --room;
        text = text.substr(0, room);
    }
    for (const char octet : text) {
        const auto value = static_cast<unsigned char>(octet);
        out.push_back(value < 0x20 || value == 0x7f ? '?' : octet);
    }
    out.append("\r\n");
}

}  // namespace

void write_reply(std::string& out, const Reply& reply) {
    std::string_view rest = reply.text;
    for (;;) {
        const size_t end = rest.find('\n');
        const bool last = end == std::string_view::npos;
        append_line(out, reply, rest.substr(0, end), last);
        if (last) return;
        rest.remove_prefix(end + 1);
    }
}

}  // namespace postern::proto
