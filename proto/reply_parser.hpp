// Replies of a next hop (RFC 5321 §4.2, RFC 2034): a bounded parser, line by line, any split of the input.
//
// A line that is whole in the fed octets is parsed where it lies; only an unfinished one is copied.  No allocation once the
// buffers have grown to the peer's usual reply.  A bare "250" line is a reply (§4.2); LF without CR ends a line too: nothing
// is hidden in a reply, so leniency costs nothing here.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace postern::proto {

// Views are valid until the parser is fed again.
struct RemoteReply {
    uint16_t code = 0;                  // 200..599
    std::string_view enhanced;          // "5.1.1" of the last line, or ""; its class is the first digit of `code`
    // The lines without code and enhanced code, joined with '\n'.  Safe to log: valid UTF-8, and what is not, or is a
    // control octet, is '?'.
    std::string_view text;
};

class ReplyParser {
public:
    enum class Status : uint8_t { more, reply, malformed };

    static constexpr size_t line_bytes_max = 2048;      // longer lines are cut
    static constexpr size_t text_bytes_max = 16 * 1024; // longer texts are cut
    static constexpr uint32_t lines_max = 1000;         // more are malformed

    ReplyParser() = default;
    ReplyParser(const ReplyParser&) = delete;           // reply() points into it

    // Consumes up to the end of one reply; `consumed` says how much.  After `reply` the parser holds it until the next
    // feed().  After `malformed`, reply() has code 0 and the offending line as text; the peer is out of step.
    Status feed(std::string_view octets, size_t& consumed);
    const RemoteReply& reply() const { return reply_; }

private:
    Status take_line(std::string_view line);
    Status malformed(std::string_view line);
    std::string_view take_enhanced(std::string_view text);
    void start();

    std::string line_;                  // of an unfinished line, the first octets
    std::string text_;
    bool text_cut_ = false;
    std::array<char, 9> enhanced_{};    // "d.ddd.ddd"
    size_t enhanced_bytes_ = 0;
    uint16_t code_ = 0;
    uint32_t lines_ = 0;
    bool done_ = false;
    RemoteReply reply_;
};

}  // namespace postern::proto
