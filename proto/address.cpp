#include "proto/address.hpp"

#include <algorithm>

namespace postern::proto {

namespace {

// RFC 5321 §4.5.3.1.1-3, in octets.
constexpr size_t local_part_bytes_max = 64;
constexpr size_t domain_bytes_max = 255;
constexpr size_t path_bytes_max = 256;          // with its brackets
constexpr size_t label_bytes_max = 63;          // RFC 1035 §2.3.4

constexpr std::string_view ipv6_tag = "ipv6:";

unsigned char value_of(char octet) { return static_cast<unsigned char>(octet); }
char lower(char octet) { return octet >= 'A' && octet <= 'Z' ? static_cast<char>(octet + 32) : octet; }
bool is_control(char octet) { return value_of(octet) < 0x20 || value_of(octet) == 0x7f; }
bool is_digit(char octet) { return octet >= '0' && octet <= '9'; }
bool is_letter_or_digit(char octet) { return (lower(octet) >= 'a' && lower(octet) <= 'z') || is_digit(octet); }
bool is_atom_octet(char octet) {
    return is_letter_or_digit(octet) || value_of(octet) > 0x7f ||
           std::string_view("!#$%&'*+-/=?^_`{|}~").find(octet) != std::string_view::npos;
}

bool equal_without_case(std::string_view a, std::string_view lower_b) {
    return a.size() == lower_b.size() &&
           std::equal(a.begin(), a.end(), lower_b.begin(), [](char x, char y) { return lower(x) == y; });
}

// RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view octets) {
    for (size_t i = 0; i < octets.size();) {
        const unsigned char first = value_of(octets[i]);
        if (first < 0x80) {
            ++i;
            continue;
        }
        const size_t length = first >= 0xc2 && first <= 0xdf   ? 2
                              : first >= 0xe0 && first <= 0xef ? 3
                              : first >= 0xf0 && first <= 0xf4 ? 4
                                                               : 0;
        if (length == 0 || octets.size() - i < length) return false;
        const unsigned char second = value_of(octets[i + 1]);
        if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) || (first == 0xf0 && second < 0x90) ||
            (first == 0xf4 && second > 0x8f))
            return false;
        for (size_t k = 1; k < length; ++k)
            if ((value_of(octets[i + k]) & 0xc0) != 0x80) return false;
        i += length;
    }
    return true;
}

// Atom *("." Atom)
bool is_dot_string(std::string_view text) {
    bool atom_wanted = true;
    for (const char octet : text) {
        if (octet == '.') {
            if (atom_wanted) return false;
            atom_wanted = true;
        } else if (is_atom_octet(octet)) {
            atom_wanted = false;
        } else {
            return false;
        }
    }
    return !atom_wanted;
}

// Length of the Quoted-string at the start of `text`, 0 when there is none.  Control octets were refused before.
size_t quoted_string_bytes(std::string_view text) {
    if (text.empty() || text[0] != '"') return 0;
    for (size_t i = 1; i < text.size(); ++i) {
        if (text[i] == '"') return i + 1;
        if (text[i] == '\\') {
            if (++i == text.size() || value_of(text[i]) > 0x7e) return 0;
        }
    }
    return 0;
}

// sub-domain *("." sub-domain); '_' is tolerated, it is seen in real host names.  A trailing dot is refused.
bool is_domain(std::string_view text) {
    size_t label = 0;
    char previous = '.';
    for (const char octet : text) {
        if (octet == '.') {
            if (label == 0 || previous == '-') return false;
            label = 0;
        } else {
            const bool fits = is_letter_or_digit(octet) || octet == '_' || value_of(octet) > 0x7f;
            if (!fits && (octet != '-' || label == 0)) return false;
            if (++label > label_bytes_max) return false;
        }
        previous = octet;
    }
    return label > 0 && previous != '-';
}

bool is_ipv4(std::string_view text) {
    for (int part = 0; part < 4; ++part) {
        size_t digits = 0;
        unsigned number = 0;
        while (digits < text.size() && digits < 3 && is_digit(text[digits]))
            number = number * 10 + static_cast<unsigned>(text[digits++] - '0');
        if (digits == 0 || number > 255) return false;
        text.remove_prefix(digits);
        if (part == 3) return text.empty();
        if (text.empty() || text[0] != '.') return false;
        text.remove_prefix(1);
    }
    return false;
}

// Groups of one to four hexadecimal digits, at most one "::", an IPv4 tail allowed (RFC 5321 §4.1.3).
bool is_ipv6(std::string_view text) {
    size_t groups = 0;
    bool gap = false;
    bool group_wanted = false;                  // after a single ':'
    if (text.substr(0, 1) == ":" && text.substr(0, 2) != "::") return false;
    while (!text.empty()) {
        if (text.substr(0, 2) == "::") {
            if (gap) return false;
            gap = true;
            group_wanted = false;
            text.remove_prefix(2);
            continue;
        }
        size_t digits = 0;
        while (digits < text.size() &&
               (is_digit(text[digits]) || (lower(text[digits]) >= 'a' && lower(text[digits]) <= 'f')))
            ++digits;
        if (digits < text.size() && text[digits] == '.') {
            if (!is_ipv4(text)) return false;
            groups += 2;
            group_wanted = false;
            break;
        }
        if (digits == 0 || digits > 4 || ++groups > 8) return false;
        text.remove_prefix(digits);
        group_wanted = false;
        if (text.empty()) break;
        if (text[0] != ':') return false;
        if (text.substr(0, 2) != "::") {
            text.remove_prefix(1);
            group_wanted = true;
        }
    }
    return !group_wanted && (gap ? groups <= 7 : groups == 8);
}

bool is_address_literal(std::string_view text) {
    if (text.size() < 3 || text.front() != '[' || text.back() != ']') return false;
    text = text.substr(1, text.size() - 2);
    if (text.size() > ipv6_tag.size() && equal_without_case(text.substr(0, ipv6_tag.size()), ipv6_tag))
        return is_ipv6(text.substr(ipv6_tag.size()));
    return is_ipv4(text);
}

// Length of "@a,@b:" at the start, 0 when there is no source route, npos when it is malformed.
size_t source_route_bytes(std::string_view text) {
    if (text.empty() || text[0] != '@') return 0;
    const size_t colon = text.find_first_of(":[\"");        // no address literal in a route
    if (colon == std::string_view::npos || text[colon] != ':') return std::string_view::npos;
    std::string_view route = text.substr(0, colon);
    while (!route.empty()) {
        const size_t comma = route.find(',');
        const std::string_view hop = route.substr(0, comma);
        if (hop.empty() || hop[0] != '@' || !is_domain(hop.substr(1))) return std::string_view::npos;
        if (comma == std::string_view::npos) break;
        route.remove_prefix(comma + 1);
        if (route.empty()) return std::string_view::npos;
    }
    return colon + 1;
}

// Where the path ends: the first '>' (or blank, without brackets) outside quotes.
size_t path_end(std::string_view text, bool brackets) {
    bool quoted = false;
    for (size_t i = 0; i < text.size(); ++i) {
        if (quoted && text[i] == '\\') {
            ++i;
        } else if (text[i] == '"') {
            quoted = !quoted;
        } else if (!quoted && text[i] == (brackets ? '>' : ' ')) {
            return i;
        }
    }
    return brackets || quoted ? std::string_view::npos : text.size();
}

AddressError parse_mailbox(std::string_view text, const PathOptions& options, Mailbox& mailbox) {
    if (options.postmaster_allowed && equal_without_case(text, "postmaster")) {
        mailbox.local_part = text;
        mailbox.postmaster = true;
        return AddressError::none;
    }
    const size_t route = source_route_bytes(text);
    if (route == std::string_view::npos) return AddressError::syntax;
    text.remove_prefix(route);

    size_t local = quoted_string_bytes(text);
    if (local == 0) {
        local = text.find('@');
        if (local == std::string_view::npos || !is_dot_string(text.substr(0, local))) return AddressError::syntax;
    }
    if (local == text.size() || text[local] != '@') return AddressError::syntax;
    const std::string_view domain = text.substr(local + 1);
    if (local > local_part_bytes_max || domain.size() > domain_bytes_max || text.size() + 2 > path_bytes_max)
        return AddressError::too_long;
    if (!is_domain(domain) && !is_address_literal(domain)) return AddressError::syntax;
    mailbox.local_part = text.substr(0, local);
    mailbox.domain = domain;
    return AddressError::none;
}

}  // namespace

PathResult parse_path(std::string_view octets, const PathOptions& options) {
    PathResult result;
    const bool brackets = !octets.empty() && octets[0] == '<';
    std::string_view text = octets.substr(brackets ? 1 : 0);
    const size_t end = path_end(text, brackets);
    if ((!brackets && options.brackets_needed) || end == std::string_view::npos) {
        const bool control = std::any_of(octets.begin(), octets.end(), is_control);
        result.error = control ? AddressError::control : AddressError::syntax;
        return result;
    }
    text = text.substr(0, end);
    result.consumed = end + (brackets ? 2 : 0);
    result.utf8 = std::any_of(text.begin(), text.end(), [](char octet) { return value_of(octet) > 0x7f; });

    if (std::any_of(text.begin(), text.end(), is_control)) {
        result.error = AddressError::control;
    } else if (result.utf8 && !is_utf8(text)) {
        result.error = AddressError::bad_utf8;
    } else if (text.empty()) {
        result.mailbox.null_path = brackets && options.null_allowed;
        result.error = result.mailbox.null_path ? AddressError::none : AddressError::syntax;
    } else {
        result.error = parse_mailbox(text, options, result.mailbox);
        if (result.error == AddressError::none && result.utf8 && !options.smtputf8)
            result.error = AddressError::not_ascii;
    }
    return result;
}

void append_canonical(std::string& out, const Mailbox& mailbox) {
    if (mailbox.null_path) return;
    if (mailbox.postmaster) {
        out.append("postmaster");
        return;
    }
    const std::string_view local = mailbox.local_part;
    if (local.empty() || local[0] != '"') {
        out.append(local);
    } else {
        // Unquote into place; quote again only when the plain form would not be a Dot-string.
        const size_t start = out.size();
        for (size_t i = 1; i + 1 < local.size(); ++i) {
            if (local[i] == '\\' && i + 2 < local.size()) ++i;
            out.push_back(local[i]);
        }
        if (!is_dot_string(std::string_view(out).substr(start))) {
            for (size_t i = start; i < out.size(); ++i) {
                if (out[i] != '"' && out[i] != '\\') continue;
                out.insert(i++, 1, '\\');
            }
            out.insert(start, 1, '"');
            out.push_back('"');
        }
    }
    out.push_back('@');
    const size_t start = out.size();
    for (const char octet : mailbox.domain) out.push_back(lower(octet));
    if (mailbox.domain.size() > ipv6_tag.size() && out.compare(start + 1, ipv6_tag.size(), ipv6_tag) == 0)
        out.replace(start + 1, ipv6_tag.size(), "IPv6:");
}

}  // namespace postern::proto
