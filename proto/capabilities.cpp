#include "proto/capabilities.hpp"

#include <algorithm>
#include <charconv>

namespace postern::proto {

namespace {

struct Keyword {
    std::string_view name;
    bool Capabilities::*offered;
};

constexpr Keyword keywords[] = {
    {"PIPELINING", &Capabilities::pipelining}, {"8BITMIME", &Capabilities::eight_bit_mime},
    {"SMTPUTF8", &Capabilities::smtputf8},     {"CHUNKING", &Capabilities::chunking},
    {"BINARYMIME", &Capabilities::binary_mime}, {"SIZE", &Capabilities::size},
};

bool equal_without_case(std::string_view word, std::string_view upper) {
    return std::equal(word.begin(), word.end(), upper.begin(), upper.end(), [](char a, char b) {
        return (a >= 'a' && a <= 'z' ? static_cast<char>(a - 'a' + 'A') : a) == b;
    });
}

uint64_t number_or_zero(std::string_view digits) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc() && end == digits.data() + digits.size() ? value : 0;
}

}  // namespace

Capabilities parse_capabilities(std::string_view text) {
    Capabilities offered;
    for (size_t at = text.find('\n'); at != std::string_view::npos; at = text.find('\n', at + 1)) {
        const std::string_view rest = text.substr(at + 1);
        const std::string_view line = rest.substr(0, rest.find('\n'));
        const std::string_view word = line.substr(0, line.find(' '));
        for (const Keyword& keyword : keywords) {
            if (!equal_without_case(word, keyword.name)) continue;
            offered.*keyword.offered = true;
            if (keyword.offered == &Capabilities::size && word.size() < line.size()) {
                offered.bytes_max = number_or_zero(line.substr(word.size() + 1));
            }
        }
    }
    return offered;
}

}  // namespace postern::proto
