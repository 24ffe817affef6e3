#include "proto/trace.hpp"

#include <cstdio>

namespace postern::proto {

namespace {

struct CivilDate {
    int64_t year;
    unsigned month;     // 1..12
    unsigned day;       // 1..31
    unsigned weekday;   // 0 is Sunday
};

// The Gregorian date of a day counted from 1970-01-01.  Counts years from March, so that the leap day comes last.
CivilDate civil_date(int64_t days) {
    const int64_t shifted = days + 719468;      // days since 0000-03-01
    const int64_t era = (shifted >= 0 ? shifted : shifted - 146096) / 146097;
    const int64_t day_of_era = shifted - era * 146097;
    const int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    const int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    const int64_t month_from_march = (5 * day_of_year + 2) / 153;
    const auto day = static_cast<unsigned>(day_of_year - (153 * month_from_march + 2) / 5 + 1);
    const auto month = static_cast<unsigned>(month_from_march < 10 ? month_from_march + 3 : month_from_march - 9);
    const auto weekday = static_cast<unsigned>(((days + 4) % 7 + 7) % 7);
    return {year_of_era + era * 400 + (month <= 2 ? 1 : 0), month, day, weekday};
}

}  // namespace

void append_date(std::string& out, Wall when) {
    static constexpr const char* weekdays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static constexpr const char* months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                             "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    constexpr int64_t day_seconds = 86400;
    int64_t days = when.seconds() / day_seconds;
    int64_t second = when.seconds() % day_seconds;
    if (second < 0) {
        second += day_seconds;
        --days;
    }
    const CivilDate date = civil_date(days);
    char text[64];
    const int length =
        std::snprintf(text, sizeof text, "%s, %02u %s %04lld %02d:%02d:%02d +0000", weekdays[date.weekday], date.day,
                      months[date.month - 1], static_cast<long long>(date.year), static_cast<int>(second / 3600),
                      static_cast<int>(second / 60 % 60), static_cast<int>(second % 60));
    out.append(text, static_cast<size_t>(length));
}

void append_received(std::string& out, const TraceFacts& facts) {
    out.append("Received: from ").append(facts.helo.empty() ? std::string_view("unknown") : facts.helo);
    out.append(facts.client_is_ipv6 ? " ([IPv6:" : " ([").append(facts.client_address).append("])\r\n\tby ");
    out.append(facts.hostname).append(" with ");
    // RFC 3848, and RFC 6531 §4.3 for mail that asked for SMTPUTF8.
    out.append(facts.smtputf8 ? "UTF8SMTP" : facts.esmtp ? "ESMTP" : "SMTP");
    out.append(" id ").append(facts.queue_id);
    if (facts.single_recipient.empty()) {
        out.append(";\r\n\t");
    } else {
        out.append("\r\n\tfor <").append(facts.single_recipient).append(">; ");
    }
    append_date(out, facts.received);
    out.append("\r\n");
}

}  // namespace postern::proto
