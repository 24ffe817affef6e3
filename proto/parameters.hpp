// Arguments of MAIL, RCPT and BDAT (RFC 5321 §4.1.1.11, RFC 1870, 6152, 3030, 6531, 4954 §5): judged, not acted upon.
// Every function returns the refusal, with code 0 when there is none.
#pragma once

#include <cstdint>
#include <string_view>

#include "proto/address.hpp"
#include "proto/envelope.hpp"
#include "proto/reply.hpp"

namespace postern::proto {

struct ServerSettings;

struct MailArguments {
    Mailbox sender;
    uint64_t declared_bytes = 0;
    BodyType body = BodyType::seven_bit;
    bool smtputf8 = false;
};

struct ChunkArguments {
    uint64_t bytes = 0;
    bool last = false;
};

// "FROM:<path> parameters".  A blank after the colon is tolerated, missing brackets are not (README, policy choices).
Reply parse_mail(std::string_view argument, const ServerSettings& settings, MailArguments& mail);
// "TO:<path>"; `smtputf8`: the transaction asked for it.
Reply parse_recipient(std::string_view argument, bool smtputf8, Mailbox& recipient);
// "n" or "n LAST".  Where a malformed chunk ends is unknown: the session cannot go on.
constexpr Reply malformed_chunk{521, "5.5.4", "Syntax: BDAT count [LAST]"};
Reply parse_chunk(std::string_view argument, ChunkArguments& chunk);

}  // namespace postern::proto
