#include "proto/reply_parser.hpp"

#include <algorithm>

namespace postern::proto {

namespace {

constexpr size_t malformed_text_bytes_max = 200;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Octets of the well-formed UTF-8 sequence (RFC 3629 §4) at the start of `octets`, 0 when there is none.  C1 controls do
// not count as well-formed: terminals obey them.
size_t utf8_sequence_bytes(std::string_view octets) {
    const auto at = [&](size_t i) { return static_cast<uint8_t>(octets[i]); };
    const uint8_t lead = at(0);
    const size_t bytes = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
    if (bytes < 2) return bytes;
    if (octets.size() < bytes) return 0;
    for (size_t i = 1; i < bytes; ++i) {
        if ((at(i) & 0xC0) != 0x80) return 0;
    }
    const uint8_t second = at(1);
    const bool wrong = (lead == 0xC2 && second < 0xA0) ||       // U+0080..U+009F
                       (lead == 0xE0 && second < 0xA0) ||       // overlong
                       (lead == 0xED && second >= 0xA0) ||      // surrogates
                       (lead == 0xF0 && second < 0x90) ||       // overlong
                       (lead == 0xF4 && second >= 0x90);        // above U+10FFFF
    return wrong ? 0 : bytes;
}

// Appends as much of `octets` as fits into `bytes_max`, in whole characters, unprintable ones as '?'.  False: not all.
bool append_printable(std::string& out, std::string_view octets, size_t bytes_max) {
    while (!octets.empty() && out.size() < bytes_max) {
        const auto first = static_cast<uint8_t>(octets.front());
        const size_t bytes = first < 0x20 || first == 0x7F ? 0 : utf8_sequence_bytes(octets);
        if (bytes == 0) {
            out += '?';
        } else if (out.size() + bytes > bytes_max) {
            return false;
        } else {
            out.append(octets.substr(0, bytes));
        }
        octets.remove_prefix(std::max<size_t>(bytes, 1));
    }
    return octets.empty();
}

// Octets of an enhanced code of class `digit` ("5.1.1", RFC 3463 §2) at the start of `text`, 0 when there is none.
size_t enhanced_code_bytes(std::string_view text, char digit) {
    if (text.empty() || text[0] != digit) return 0;
    size_t at = 1;
    for (int part = 0; part < 2; ++part) {
        if (at >= text.size() || text[at] != '.') return 0;
        const size_t first = ++at;
        while (at < text.size() && at - first < 3 && is_digit(text[at])) ++at;
        if (at == first) return 0;
    }
    return at == text.size() || text[at] == ' ' ? at : 0;
}

}  // namespace

ReplyParser::Status ReplyParser::feed(std::string_view octets, size_t& consumed) {
    if (done_) start();
    constexpr size_t kept_max = line_bytes_max + 1;     // with the CR, so that cutting is the same for any split
    consumed = 0;
    while (consumed < octets.size()) {
        const std::string_view rest = octets.substr(consumed);
        const size_t newline = rest.find('\n');
        std::string_view line = rest.substr(0, newline).substr(0, kept_max);
        if (newline == std::string_view::npos || !line_.empty()) {
            line_.append(line.substr(0, kept_max - line_.size()));
            line = line_;
        }
        if (newline == std::string_view::npos) {
            consumed = octets.size();
            return Status::more;
        }
        consumed += newline + 1;
        if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
        const Status status = take_line(line.substr(0, line_bytes_max));
        line_.clear();
        if (status != Status::more) return status;
    }
    return Status::more;
}

ReplyParser::Status ReplyParser::take_line(std::string_view line) {
    const bool has_code = line.size() >= 3 && line[0] >= '2' && line[0] <= '5' && is_digit(line[1]) && is_digit(line[2]);
    if (!has_code) return malformed(line);
    const bool last = line.size() == 3 || line[3] == ' ';
    if (!last && line[3] != '-') return malformed(line);
    const auto code = static_cast<uint16_t>((line[0] - '0') * 100 + (line[1] - '0') * 10 + (line[2] - '0'));
    if (lines_ > 0 && code != code_) return malformed(line);    // §4.2.1: the same code on every line
    if (lines_ == lines_max) return malformed(line);
    code_ = code;
    const std::string_view text = take_enhanced(line.substr(std::min<size_t>(line.size(), 4)));
    if (lines_++ > 0) {
        text_cut_ = text_cut_ || text_.size() == text_bytes_max;
        if (!text_cut_) text_ += '\n';
    }
    text_cut_ = text_cut_ || !append_printable(text_, text, text_bytes_max);
    if (!last) return Status::more;
    reply_ = {code_, std::string_view(enhanced_.data(), enhanced_bytes_), text_};
    done_ = true;
    return Status::reply;
}

// Keeps the enhanced code at the start of `text`, if any, and returns what follows it.
std::string_view ReplyParser::take_enhanced(std::string_view text) {
    enhanced_bytes_ = 0;
    if (code_ >= 300 && code_ < 400) return text;       // RFC 2034 §4: none in 3xx
    enhanced_bytes_ = enhanced_code_bytes(text, static_cast<char>('0' + code_ / 100));
    if (enhanced_bytes_ == 0) return text;
    std::copy_n(text.begin(), enhanced_bytes_, enhanced_.begin());
    return text.substr(std::min(text.size(), enhanced_bytes_ + 1));
}

ReplyParser::Status ReplyParser::malformed(std::string_view line) {
    text_.clear();
    append_printable(text_, line, malformed_text_bytes_max);
    reply_ = {0, {}, text_};
    done_ = true;
    return Status::malformed;
}

void ReplyParser::start() {
    text_.clear();
    text_cut_ = false;
    enhanced_bytes_ = 0;
    code_ = 0;
    lines_ = 0;
    done_ = false;
    reply_ = {};
}

}  // namespace postern::proto
