// How a line is written: logfmt and JSON, escaping, cutting, times.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "gateway/log.hpp"
#include "ring/clock.hpp"

namespace postern::gateway {
namespace {

constexpr std::string_view cut_mark_logfmt = " cut=true";
constexpr std::string_view cut_mark_json = ",\"cut\":true}";
constexpr std::string_view value_cut = "...";
// Kept free for what ends a value and a line, however full it is.
constexpr size_t reserve_bytes = 1 + value_cut.size() + std::max(cut_mark_logfmt.size(), cut_mark_json.size());
constexpr size_t room_bytes = log_line_bytes_max - reserve_bytes;
constexpr size_t escape_bytes_max = 6;                  // \u001f

constexpr std::string_view level_names[] = {"debug", "info", "warning", "error"};

// What can stand in a value as it is, in quotes.
bool plain(unsigned char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; }

bool bare_in_logfmt(std::string_view value) {
    return !value.empty() &&
           std::all_of(value.begin(), value.end(), [](char c) { return c != ' ' && c != '=' && plain(static_cast<unsigned char>(c)); });
}

// Length of the well-formed UTF-8 sequence (RFC 3629 §4) at the front of `text`, 0 if it is none.  The controls U+0080 to
// U+009F count as none: a terminal would obey them.
size_t utf8_sequence(std::string_view text) {
    const auto octet = [&](size_t i) -> unsigned { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0; };
    const auto continues = [&](size_t i) { return (octet(i) & 0xc0) == 0x80; };
    const unsigned lead = octet(0), second = octet(1);
    if (lead >= 0xc2 && lead <= 0xdf) return continues(1) && (lead != 0xc2 || second >= 0xa0) ? 2 : 0;
    if (lead >= 0xe0 && lead <= 0xef) {
        const bool overlong_or_surrogate = (lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f);
        return continues(1) && continues(2) && !overlong_or_surrogate ? 3 : 0;
    }
    if (lead >= 0xf0 && lead <= 0xf4) {
        const bool out_of_range = (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f);
        return continues(1) && continues(2) && continues(3) && !out_of_range ? 4 : 0;
    }
    return 0;
}

size_t escape(unsigned char c, char* to) {
    static constexpr char hex[] = "0123456789abcdef";
    const char shorthand = c == '\n' ? 'n' : c == '\r' ? 'r' : c == '\t' ? 't' : c == '"' || c == '\\' ? static_cast<char>(c) : 0;
    to[0] = '\\';
    if (shorthand) {
        to[1] = shorthand;
        return 2;
    }
    std::memcpy(to + 1, "u00", 3);
    to[4] = hex[c >> 4];
    to[5] = hex[c & 15];
    return escape_bytes_max;
}

char* two_digits(char* to, unsigned value) {
    *to++ = static_cast<char>('0' + value / 10);
    *to++ = static_cast<char>('0' + value % 10);
    return to;
}

}  // namespace

std::string_view LogLane::time_text() {
    const Wall now = now_.ns >= 0 ? now_ : ring::wall_now();
    const int64_t second = now.seconds();
    if (second != second_shown_) {
        using namespace std::chrono;
        const sys_seconds at{std::chrono::seconds(second)};
        const year_month_day date(floor<days>(at));
        const hh_mm_ss clock(at - floor<days>(at));
        const auto year = static_cast<unsigned>(static_cast<int>(date.year()));
        char* to = two_digits(time_text_.data(), year / 100);
        to = two_digits(to, year % 100);
        *to++ = '-';
        to = two_digits(to, static_cast<unsigned>(date.month()));
        *to++ = '-';
        to = two_digits(to, static_cast<unsigned>(date.day()));
        *to++ = 'T';
        to = two_digits(to, static_cast<unsigned>(clock.hours().count()));
        *to++ = ':';
        to = two_digits(to, static_cast<unsigned>(clock.minutes().count()));
        *to++ = ':';
        to = two_digits(to, static_cast<unsigned>(clock.seconds().count()));
        *to = '.';
        time_text_[23] = 'Z';
        second_shown_ = second;
    }
    const auto millisecond = static_cast<unsigned>(now.ns % 1'000'000'000 / 1'000'000);
    time_text_[20] = static_cast<char>('0' + millisecond / 100);
    two_digits(time_text_.data() + 21, millisecond % 100);
    return {time_text_.data(), time_text_.size()};
}

void LogLine::begin(Level level, std::string_view event) {
    const std::string_view name = level_names[static_cast<size_t>(level)];
    if (lane_.format_ == LogFormat::json) {
        put("{\"time\":\"");
        put(lane_.time_text());
        put("\",\"level\":\"");
        put(name);
        put("\",\"thread\":\"");
        put(lane_.thread_name_);
        put("\",\"event\":\"");
        put(event);
        put("\"");
    } else {
        put("time=");
        put(lane_.time_text());
        put(" level=");
        put(name);
        put(" thread=");
        put(lane_.thread_name_);
        put(" event=");
        put(event);
    }
}

void LogLine::emit() {
    if (lane_.format_ == LogFormat::json)
        put(cut_ ? cut_mark_json : cut_mark_json.substr(cut_mark_json.size() - 1));
    else if (cut_)
        put(cut_mark_logfmt);
    lane_.push({text_, length_});
}

void LogLine::put(std::string_view octets) {
    std::memcpy(text_ + length_, octets.data(), octets.size());
    length_ += octets.size();
}

bool LogLine::put_name(std::string_view name, size_t value_bytes) {
    constexpr size_t punctuation_bytes = 4;             // ,"":
    if (cut_ || length_ + name.size() + punctuation_bytes + value_bytes > room_bytes) {
        cut_ = true;
        return false;
    }
    if (lane_.format_ == LogFormat::json) {
        put(",\"");
        put(name);
        put("\":");
    } else {
        put(" ");
        put(name);
        put("=");
    }
    return true;
}

void LogLine::put_plain(std::string_view name, std::string_view value) {
    if (put_name(name, value.size())) put(value);
}

void LogLine::put_duration(std::string_view name, Duration value) {
    char digits[32];
    const int64_t us = std::max<int64_t>(value.ns, 0) / 1000;
    char* end = std::to_chars(digits, digits + sizeof digits, us / 1'000'000).ptr;
    *end++ = '.';
    const auto fraction = static_cast<unsigned>(us % 1'000'000);
    end = two_digits(two_digits(two_digits(end, fraction / 10'000), fraction / 100 % 100), fraction % 100);
    put_plain(name, {digits, end});
}

void LogLine::put_text(std::string_view name, std::string_view value) {
    if (lane_.format_ == LogFormat::logfmt && value.size() <= log_value_bytes_max && bare_in_logfmt(value) &&
        length_ + name.size() + value.size() + 2 <= room_bytes)
        return put_plain(name, value);
    if (!put_name(name, 1 + escape_bytes_max)) return;
    put("\"");
    put_escaped(value);
    put("\"");
}

void LogLine::put_escaped(std::string_view value) {
    const size_t end = std::min(room_bytes, length_ + log_value_bytes_max);
    while (!value.empty()) {
        const auto c = static_cast<unsigned char>(value.front());
        char escaped[escape_bytes_max];
        std::string_view piece = value.substr(0, 1);
        size_t taken = 1;
        if (!plain(c)) {
            taken = c >= 0x80 ? utf8_sequence(value) : 0;
            piece = taken ? value.substr(0, taken) : std::string_view(escaped, escape(c, escaped));
            taken = std::max<size_t>(taken, 1);
        }
        if (length_ + piece.size() > end) return put(value_cut);
        put(piece);
        value.remove_prefix(taken);
    }
}

}  // namespace postern::gateway
