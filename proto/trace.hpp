// The Received field (RFC 5321 §4.4, RFC 3848, RFC 6531).
#pragma once

#include <string>
#include <string_view>

#include "ring/base/units.hpp"

namespace postern::proto {

struct TraceFacts {
    std::string_view helo;              // sanitised by the session
    std::string_view client_address;    // "192.0.2.7" or "2001:db8::1"
    bool client_is_ipv6 = false;
    std::string_view hostname;          // ours
    std::string_view queue_id;
    bool esmtp = true;
    bool smtputf8 = false;
    std::string_view single_recipient;  // named in "for" when not empty: only for mail to one recipient (Bcc)
    Wall received;
};

// Appends the whole field with its CRLF; lines fold below 998 octets; the date is RFC 5322 in UTC ("+0000").
void append_received(std::string& out, const TraceFacts& facts);
// "Mon, 30 Nov 2026 12:00:00 +0000"
void append_date(std::string& out, Wall when);

}  // namespace postern::proto
