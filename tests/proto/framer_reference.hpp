// What DataFramer must do, written the obvious slow way: the whole input at once, one octet after the other.
#pragma once

#include <strings.h>

#include <string>
#include <string_view>

#include "proto/framer.hpp"

namespace postern::proto::test {

struct Framed {
    std::string octets;
    DataFacts facts;
    size_t consumed = 0;
    bool ended = false;
};

inline bool same_facts(const DataFacts& a, const DataFacts& b) {
    return a.bytes == b.bytes && a.received_fields == b.received_fields && a.header_bytes == b.header_bytes &&
           a.header_ended == b.header_ended && a.bare_cr == b.bare_cr && a.bare_lf == b.bare_lf &&
           a.nul_in_header == b.nul_in_header && a.eight_bit == b.eight_bit && a.dot_line == b.dot_line &&
           a.parted_from_trace == b.parted_from_trace && a.ends_with_crlf == b.ends_with_crlf;
}

// First the transport is taken off: where the data ends, which dots go, what bare CR and LF become.
inline std::string reference_unstuff(std::string_view input, bool data, BareNewline policy, Framed& framed) {
    std::string out;
    const bool normalize = policy == BareNewline::normalize;
    bool line_start = true;
    size_t i = 0;
    while (i < input.size()) {
        if (data && line_start && input.substr(i, 3) == ".\r\n") {
            framed.ended = true;
            i += 3;
            break;
        }
        if (data && line_start && input[i] == '.') {
            line_start = false;
            ++i;
            continue;
        }
        line_start = false;
        const char octet = input[i];
        if (static_cast<unsigned char>(octet) > 0x7f) framed.facts.eight_bit = true;
        if (octet == '\r' && i + 1 < input.size() && input[i + 1] == '\n') {
            out += "\r\n";
            line_start = true;
            i += 2;
        } else if (octet == '\r') {
            framed.facts.bare_cr = true;
            out += normalize ? " " : "\r";
            ++i;
        } else if (octet == '\n') {
            framed.facts.bare_lf = true;
            out += normalize ? "\r\n" : "\n";
            ++i;
        } else {
            out += octet;
            ++i;
        }
    }
    framed.consumed = i;
    return out;
}

inline bool begins_with_field(std::string_view message) {
    size_t name = 0;
    while (name < message.size() && message[name] >= 33 && message[name] <= 126 && message[name] != ':') ++name;
    if (name < 1 || name > 76) return false;
    const std::string_view behind = message.substr(name, 2);
    return behind.substr(0, 1) == ":" || behind == " :" || behind == "\t:";
}

// Then the message is looked at, as a message.
inline Framed reference_frame(std::string_view input, bool data, BareNewline policy) {
    Framed framed;
    framed.octets = reference_unstuff(input, data, policy, framed);
    DataFacts& facts = framed.facts;
    const bool fits = framed.octets.substr(0, 2) == "\r\n" || begins_with_field(framed.octets);
    if (!framed.octets.empty() && !fits) {
        facts.parted_from_trace = true;
        framed.octets.insert(0, "\r\n");
    }
    const std::string_view message = framed.octets;
    size_t header = message.size();
    for (size_t at = 0; at < message.size();) {  // each `at` is the start of a line
        if (message.substr(at, 2) == "\r\n") {
            facts.header_ended = true;
            header = at + 2;
            break;
        }
        if (message.size() - at >= 9 && strncasecmp(message.data() + at, "received:", 9) == 0) ++facts.received_fields;
        const size_t end = message.find("\r\n", at);
        if (end == std::string_view::npos) break;
        at = end + 2;
    }
    for (size_t at = 0; at < message.size(); ++at) {
        const bool starts_line = at == 0 || (at >= 2 && message[at - 2] == '\r' && message[at - 1] == '\n');
        if (starts_line && message[at] == '.') facts.dot_line = true;
        if (at < header && message[at] == '\0') facts.nul_in_header = true;
    }
    facts.header_bytes = static_cast<uint32_t>(header);
    facts.bytes = message.size();
    facts.ends_with_crlf = message.empty() || (message.size() >= 2 && message.substr(message.size() - 2) == "\r\n");
    return framed;
}

struct CollectingSink final : DataSink {
    void on_data(std::string_view slice) override { octets.append(slice); }
    std::string octets;
};

// The framer itself, its input cut into pieces of next_piece() octets.  Stops where the data ends.
template <class NextPiece>
Framed frame(std::string_view input, bool data, BareNewline policy, NextPiece&& next_piece) {
    DataFramer framer;
    CollectingSink sink;
    size_t consumed = 0;
    if (data) {
        framer.begin_data(policy);
    } else {
        framer.begin_message(policy);
    }
    while (consumed < input.size() && !(data && framer.ended())) {
        const std::string piece(input.substr(consumed, next_piece()));  // a copy: no view may reach beyond it
        if (!data && framer.ended()) framer.begin_chunk(piece.size());
        consumed += framer.feed(piece, sink);
    }
    if (!data) framer.finish_message(sink);
    return {sink.octets, framer.facts(), consumed, data && framer.ended()};
}

}  // namespace postern::proto::test
