// ReplyParser on any octets: bounded, always forward, the same replies in one piece and octet by octet, and texts that are
// safe to log.
#include <string>
#include <string_view>

#include "proto/reply_parser.hpp"
#include "ring/base/check.hpp"

using postern::proto::RemoteReply;
using postern::proto::ReplyParser;

namespace {

void check_reply(const RemoteReply& reply, bool malformed) {
    CHECK_INVARIANT(malformed ? reply.code == 0 : reply.code >= 200 && reply.code <= 599);
    CHECK_INVARIANT(reply.text.size() <= ReplyParser::text_bytes_max);
    for (const char c : reply.text) CHECK_INVARIANT(c == '\n' || (static_cast<unsigned char>(c) >= 0x20 && c != 0x7F));
    if (!reply.enhanced.empty()) CHECK_INVARIANT(reply.enhanced[0] == static_cast<char>('0' + reply.code / 100));
}

std::string replies(std::string_view octets, size_t piece_bytes) {
    ReplyParser parser;
    std::string found;
    while (!octets.empty()) {
        std::string_view piece = octets.substr(0, piece_bytes);
        octets.remove_prefix(piece.size());
        while (!piece.empty()) {
            size_t consumed = 0;
            const auto status = parser.feed(piece, consumed);
            CHECK_INVARIANT(consumed > 0 && consumed <= piece.size());
            CHECK_INVARIANT(status != ReplyParser::Status::more || consumed == piece.size());
            piece.remove_prefix(consumed);
            if (status == ReplyParser::Status::more) continue;
            const RemoteReply& reply = parser.reply();
            check_reply(reply, status == ReplyParser::Status::malformed);
            found.append(std::to_string(reply.code)).append("|").append(reply.enhanced).append("|").append(reply.text) += '\0';
        }
    }
    return found;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
    const std::string_view octets(reinterpret_cast<const char*>(data), bytes);
    const std::string whole = replies(octets, octets.size() + 1);
    CHECK_INVARIANT(replies(octets, 1) == whole);
    CHECK_INVARIANT(replies(octets, 7) == whole);
    return 0;
}
