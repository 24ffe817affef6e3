#include "proto/parameters.hpp"

#include <algorithm>

#include "proto/command.hpp"
#include "proto/server_session.hpp"

namespace postern::proto {

namespace {

constexpr size_t size_digits_max = 20;          // RFC 1870 §4

constexpr Reply no_refusal{};
constexpr Reply bad_syntax{501, "5.5.4", "Syntax error in the parameters"};
constexpr Reply twice{501, "5.5.4", "A parameter was given twice"};
constexpr Reply unknown_parameter{555, "5.5.4", "Parameter not recognised"};
constexpr Reply too_big{552, "5.3.4", "Message is larger than this server takes"};

enum class Digits : uint8_t { good, malformed, overflow };

Digits parse_digits(std::string_view text, uint64_t& number) {
    if (text.empty() || text.size() > size_digits_max) return Digits::malformed;
    if (!std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; })) return Digits::malformed;
    number = 0;
    for (const char octet : text) {
        const auto digit = static_cast<uint64_t>(octet - '0');
        if (number > (UINT64_MAX - digit) / 10) return Digits::overflow;
        number = number * 10 + digit;
    }
    return Digits::good;
}

// xtext of RFC 3461 §4, or the mailbox form "<>" that RFC 4954 §5 names.
bool is_auth_value(std::string_view text) {
    if (text == "<>") return true;
    if (text.empty()) return false;
    const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'); };
    for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '+') {
            if (text.size() - i < 3 || !is_hex(text[i + 1]) || !is_hex(text[i + 2])) return false;
            i += 2;
        } else if (text[i] < '!' || text[i] > '~' || text[i] == '=') {
            return false;
        }
    }
    return true;
}

struct Parameter {
    std::string_view name;
    std::string_view value;
    bool has_value = false;
};

Reply set_size(const Parameter& parameter, const ServerSettings& settings, MailArguments& mail) {
    switch (parse_digits(parameter.value, mail.declared_bytes)) {
        case Digits::malformed: return {501, "5.5.4", "SIZE wants a number"};
        case Digits::overflow: return too_big;
        case Digits::good: break;
    }
    return mail.declared_bytes > settings.message_bytes_max ? too_big : no_refusal;
}

Reply set_body(const Parameter& parameter, const ServerSettings& settings, MailArguments& mail) {
    if (equal_without_case(parameter.value, "7bit")) {
        mail.body = BodyType::seven_bit;
    } else if (equal_without_case(parameter.value, "8bitmime")) {
        mail.body = BodyType::eight_bit_mime;
    } else if (equal_without_case(parameter.value, "binarymime") && settings.chunking) {
        mail.body = BodyType::binary_mime;
    } else {
        return {504, "5.5.4", "BODY value not known"};
    }
    return no_refusal;
}

Reply set_smtputf8(const Parameter& parameter, const ServerSettings& settings, MailArguments& mail) {
    if (!settings.smtputf8) return unknown_parameter;
    if (parameter.has_value) return {501, "5.5.4", "SMTPUTF8 takes no value"};
    mail.smtputf8 = true;
    return no_refusal;
}

// Nobody has logged in, so the value is worth nothing: checked and forgotten (RFC 4954 §5).
Reply set_auth(const Parameter& parameter, const ServerSettings&, MailArguments&) {
    return is_auth_value(parameter.value) ? no_refusal : Reply{501, "5.5.4", "AUTH wants xtext or <>"};
}

struct ParameterRule {
    std::string_view name;
    Reply (*set)(const Parameter&, const ServerSettings&, MailArguments&);
};

constexpr ParameterRule mail_parameters[] = {
    {"size", set_size},
    {"body", set_body},
    {"smtputf8", set_smtputf8},
    {"auth", set_auth},
};

Reply parse_mail_parameters(std::string_view text, const ServerSettings& settings, MailArguments& mail) {
    unsigned seen = 0;
    for (text = trim_blanks(text); !text.empty(); text = trim_blanks(text)) {
        const std::string_view word = text.substr(0, text.find(' '));
        text.remove_prefix(word.size());
        const size_t equals = word.find('=');
        Parameter parameter{word.substr(0, equals), {}, equals != std::string_view::npos};
        if (parameter.has_value) parameter.value = word.substr(equals + 1);
        if (parameter.name.empty()) return bad_syntax;

        const auto rule = std::find_if(
            std::begin(mail_parameters), std::end(mail_parameters),
            [&](const ParameterRule& candidate) { return equal_without_case(parameter.name, candidate.name); });
        if (rule == std::end(mail_parameters)) return unknown_parameter;
        const unsigned bit = 1u << (rule - std::begin(mail_parameters));
        if (seen & bit) return twice;
        seen |= bit;
        if (const Reply refusal = rule->set(parameter, settings, mail); refusal.code != 0) return refusal;
    }
    return no_refusal;
}

// Takes "FROM:" or "TO:" and the blanks behind it off `argument`.
bool take_keyword(std::string_view& argument, std::string_view keyword) {
    if (!equal_without_case(argument.substr(0, keyword.size()), keyword)) return false;
    argument = trim_blanks(argument.substr(keyword.size()));
    return true;
}

Reply address_refusal(AddressError error, std::string_view enhanced) {
    switch (error) {
        case AddressError::none: return no_refusal;
        case AddressError::syntax: return {501, enhanced, "Malformed address"};
        case AddressError::too_long: return {501, enhanced, "Address too long"};
        case AddressError::not_ascii: return {553, "5.6.7", "Address needs SMTPUTF8"};
        case AddressError::bad_utf8: return {501, enhanced, "Address is not valid UTF-8"};
        case AddressError::control: return {501, enhanced, "Control character in the address"};
    }
    return {501, enhanced, "Malformed address"};
}

// What follows a path is nothing, or a blank and parameters.
bool ends_path(std::string_view rest) { return rest.empty() || rest[0] == ' '; }

}  // namespace

Reply parse_mail(std::string_view argument, const ServerSettings& settings, MailArguments& mail) {
    if (!take_keyword(argument, "from:")) return {501, "5.5.4", "Syntax: MAIL FROM:<address> [parameters]"};
    // SMTPUTF8 stands behind the path that may need it.
    const PathResult path = parse_path(argument, {.smtputf8 = true, .null_allowed = true});
    if (path.error != AddressError::none) return address_refusal(path.error, "5.1.7");
    const std::string_view rest = argument.substr(path.consumed);
    if (!ends_path(rest)) return bad_syntax;
    if (const Reply refusal = parse_mail_parameters(rest, settings, mail); refusal.code != 0) return refusal;
    if (path.utf8 && !mail.smtputf8) return address_refusal(AddressError::not_ascii, "5.1.7");
    mail.sender = path.mailbox;
    return no_refusal;
}

Reply parse_recipient(std::string_view argument, bool smtputf8, Mailbox& recipient) {
    if (!take_keyword(argument, "to:")) return {501, "5.5.4", "Syntax: RCPT TO:<address>"};
    const PathResult path = parse_path(argument, {.smtputf8 = smtputf8, .postmaster_allowed = true});
    if (path.error != AddressError::none) return address_refusal(path.error, "5.1.3");
    const std::string_view rest = argument.substr(path.consumed);
    if (!ends_path(rest)) return bad_syntax;
    if (!trim_blanks(rest).empty()) return unknown_parameter;
    recipient = path.mailbox;
    return no_refusal;
}

Reply parse_chunk(std::string_view argument, ChunkArguments& chunk) {
    const std::string_view count = argument.substr(0, argument.find(' '));
    const std::string_view rest = trim_blanks(argument.substr(count.size()));
    if (parse_digits(count, chunk.bytes) != Digits::good) return malformed_chunk;
    chunk.last = equal_without_case(rest, "last");
    return chunk.last || rest.empty() ? no_refusal : malformed_chunk;
}

}  // namespace postern::proto
