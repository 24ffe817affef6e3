// Paths and mailboxes (RFC 5321 §4.1.2, RFC 6531 §3.3): a bounded span parser; no allocation, no look-ups.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace postern::proto {

enum class AddressError : uint8_t {
    none,
    syntax,             // 501 5.1.7 / 5.1.3
    too_long,           // local part 64, domain 255, path 256 (§4.5.3.1.1-3)
    not_ascii,          // UTF-8 where SMTPUTF8 was not asked for: 553 5.6.7
    bad_utf8,           // 501
    control,            // a control octet
};

// A mailbox.  `local_part` is in its written form (quoted when it was); `domain` may be an address literal "[...]".
// Both are views of the parsed octets.
struct Mailbox {
    std::string_view local_part;
    std::string_view domain;
    bool null_path = false;             // <>
    bool postmaster = false;            // <Postmaster> without a domain, any case
};

struct PathOptions {
    bool smtputf8 = false;              // UTF-8 is allowed
    bool null_allowed = false;          // MAIL
    bool postmaster_allowed = false;    // RCPT
    bool brackets_needed = true;
};

struct PathResult {
    AddressError error = AddressError::none;
    Mailbox mailbox;
    size_t consumed = 0;                // octets up to and with '>'
    bool utf8 = false;                  // the path has octets above 127
};

// Parses a path at the start of `octets`; a source route is parsed and dropped (§3.3, App. C); no percent hack, no bang
// path, no further splitting: the domain is what follows the last unquoted '@'.
PathResult parse_path(std::string_view octets, const PathOptions& options);

// Canonical written form: needless quotes removed, domain in lower case (ASCII).  Appended to `out`.
void append_canonical(std::string& out, const Mailbox& mailbox);

}  // namespace postern::proto
