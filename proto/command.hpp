// A command line taken apart (RFC 5321 §4.1.1): the verb in any case, and what follows it.  Views of the line.
#pragma once

#include <cstdint>
#include <string_view>

namespace postern::proto {

enum class Verb : uint8_t { helo, ehlo, mail, rcpt, data, bdat, rset, noop, vrfy, expn, help, quit, starttls, auth, lhlo, http,
                            unknown };
constexpr size_t verb_count = 17;
std::string_view verb_name(Verb verb);          // lower case, for metrics and logs

// What is wrong with the octets of a line, whatever they say.
enum class LineFault : uint8_t {
    none,
    bare_newline,       // a CR or LF that is not part of the line's end
    control,            // another control octet
};

struct CommandLine {
    Verb verb = Verb::unknown;
    std::string_view argument;          // without blanks at both ends
    LineFault fault = LineFault::none;
};

// `line` comes without its CRLF.  Trailing blanks are ignored (§4.1.1).
CommandLine parse_command(std::string_view line);

// ASCII only; `lower` is in lower case.
bool equal_without_case(std::string_view text, std::string_view lower);
std::string_view trim_blanks(std::string_view text);

}  // namespace postern::proto
