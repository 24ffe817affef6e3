#include "proto/client_session.hpp"

namespace postern::proto {

namespace {

enum Position : uint8_t { line_start, in_line, after_cr };

}  // namespace

void DotStuffer::begin() { state_ = line_start; }

void DotStuffer::append(std::string& out, std::string_view octets) {
    if (octets.empty()) return;
    // Where the first octets continue the last ones, "\r\n." may be cut anywhere; behind them it is whole.
    size_t copied = 0;
    if (state_ == line_start && octets.front() == '.') out += '.';
    if (state_ == after_cr && octets.starts_with("\n.")) {
        out += "\n.";
        copied = 1;
    }
    for (size_t at = octets.find("\r\n."); at != std::string_view::npos; at = octets.find("\r\n.", at + 3)) {
        out.append(octets.substr(copied, at + 2 - copied));
        out += '.';
        copied = at + 2;
    }
    out.append(octets.substr(copied));
    passed(octets);
}

void DotStuffer::passed(std::string_view octets) {
    if (octets.empty()) return;
    const bool cr_before_last = octets.size() > 1 ? octets[octets.size() - 2] == '\r' : state_ == after_cr;
    if (octets.back() == '\n' && cr_before_last) {
        state_ = line_start;
    } else {
        state_ = octets.back() == '\r' ? after_cr : in_line;
    }
}

void DotStuffer::finish(std::string& out) {
    if (state_ != line_start) out += "\r\n";
    out += ".\r\n";
}

}  // namespace postern::proto
