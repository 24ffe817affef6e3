// Replies of a next hop (RFC 5321 §4.2, RFC 2034): a bounded parser, line by line, any split of the input.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace postern::proto {

struct RemoteReply {
    uint16_t code = 0;                  // 200..599
    std::string_view enhanced;          // "5.1.1" of the last line, or ""
    std::string_view text;              // lines without code, joined with '\n'; control octets as '?'
};

class ReplyParser {
public:
    enum class Status : uint8_t { more, reply, malformed };
    // Consumes up to the end of one reply; `consumed` says how much.  After `reply` the parser holds it until the next
    // feed().  Lines over 2,048 octets are cut, texts over 16 KiB too; more than 1,000 lines are malformed.
    Status feed(std::string_view octets, size_t& consumed);
    const RemoteReply& reply() const { return reply_; }

private:
    std::string line_;
    std::string text_;
    std::string last_text_;
    uint16_t code_ = 0;
    uint32_t lines_ = 0;
    bool done_ = false;
    RemoteReply reply_;
};

}  // namespace postern::proto
