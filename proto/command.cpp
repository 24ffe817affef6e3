#include "proto/command.hpp"

#include <algorithm>
#include <array>

namespace postern::proto {

namespace {

constexpr std::array<std::string_view, verb_count> names = {"helo",     "ehlo", "mail", "rcpt", "data",   "bdat",
                                                            "rset",     "noop", "vrfy", "expn", "help",   "quit",
                                                            "starttls", "auth", "lhlo", "http", "unknown"};
constexpr size_t spoken_verbs = verb_count - 2;         // all but http and unknown

// First words of HTTP requests: a browser, or an attack that goes through one.
constexpr std::string_view http_methods[] = {"get",     "post",   "head",  "put",  "options",
                                             "connect", "delete", "patch", "trace"};

char lower(char octet) { return octet >= 'A' && octet <= 'Z' ? static_cast<char>(octet + 32) : octet; }

Verb find_verb(std::string_view word) {
    for (size_t verb = 0; verb < spoken_verbs; ++verb)
        if (equal_without_case(word, names[verb])) return static_cast<Verb>(verb);
    for (const std::string_view method : http_methods)
        if (equal_without_case(word, method)) return Verb::http;
    return Verb::unknown;
}

LineFault find_fault(std::string_view line) {
    LineFault fault = LineFault::none;
    for (const char octet : line) {
        const auto value = static_cast<unsigned char>(octet);
        if (value >= 0x20 && value != 0x7f) continue;
        if (octet == '\r' || octet == '\n') return LineFault::bare_newline;
        fault = LineFault::control;
    }
    return fault;
}

}  // namespace

std::string_view verb_name(Verb verb) { return names[static_cast<size_t>(verb)]; }

bool equal_without_case(std::string_view text, std::string_view lower_text) {
    return text.size() == lower_text.size() &&
           std::equal(text.begin(), text.end(), lower_text.begin(), [](char a, char b) { return lower(a) == b; });
}

std::string_view trim_blanks(std::string_view text) {
    const auto is_blank = [](char octet) { return octet == ' ' || octet == '\t'; };
    while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
    while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
    return text;
}

CommandLine parse_command(std::string_view line) {
    CommandLine command;
    while (!line.empty() && (line.back() == ' ' || line.back() == '\t')) line.remove_suffix(1);
    command.fault = find_fault(line);
    const size_t end = line.find(' ');
    command.verb = find_verb(line.substr(0, end));
    if (end != std::string_view::npos) command.argument = trim_blanks(line.substr(end));
    return command;
}

}  // namespace postern::proto
