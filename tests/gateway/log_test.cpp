#include "gateway/log.hpp"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

using namespace postern;
using namespace postern::gateway;

namespace {

constexpr Wall noon{1'764'590'400'123'456'789};         // 2025-12-01T12:00:00.123Z

// What the log's thread has written so far.
class Written {
public:
    LogSink sink() {
        return [this](std::string_view lines) {
            const std::lock_guard lock(mutex_);
            text_ += lines;
        };
    }
    std::string text() const {
        const std::lock_guard lock(mutex_);
        return text_;
    }
    std::vector<std::string> lines() const {
        std::vector<std::string> lines;
        std::istringstream text_now(text());
        for (std::string line; std::getline(text_now, line);) lines.push_back(line);
        return lines;
    }

private:
    mutable std::mutex mutex_;
    std::string text_;
};

// Writes one line by `write(lane)` and gives it back, without its end.
template <class Write>
std::string line_of(LogFormat format, Write&& write) {
    Written written;
    Log log(format, Level::debug, written.sink());
    LogLane& lane = log.lane("shard0");
    lane.set_time(noon);
    write(lane);
    log.stop();
    std::string text = written.text();
    REQUIRE(text.ends_with('\n'));
    text.pop_back();
    return text;
}
std::string logfmt_value(std::string_view value) {
    const std::string line = line_of(LogFormat::logfmt, [&](LogLane& lane) { LogLine(lane, Level::info, "e").field("v", value); });
    return line.substr(line.find(" v=") + 3);
}
std::string json_value(std::string_view value) {
    const std::string line = line_of(LogFormat::json, [&](LogLane& lane) { LogLine(lane, Level::info, "e").field("v", value); });
    return nlohmann::json::parse(line).at("v").get<std::string>();
}

bool eventually(auto&& condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!condition()) {
        if (std::chrono::steady_clock::now() > deadline) return false;
        std::this_thread::yield();
    }
    return true;
}

}  // namespace

TEST_CASE("A line in logfmt is its time, level, thread, event and fields", "[log]") {
    CHECK(line_of(LogFormat::logfmt, [](LogLane& lane) {
              LogLine(lane, Level::info, "accepted").field("id", "4Kx7").field("bytes", 123u).field("offset", -5)
                  .field("tls", false).field("seconds", microseconds(1'002'003)).field("queued", uint64_t{18446744073709551615u});
          }) == "time=2025-12-01T12:00:00.123Z level=info thread=shard0 event=accepted id=4Kx7 bytes=123 offset=-5 tls=false "
                "seconds=1.002003 queued=18446744073709551615");
}

TEST_CASE("A line in JSON is one object with the same fields", "[log]") {
    const auto object = nlohmann::json::parse(line_of(LogFormat::json, [](LogLane& lane) {
        LogLine(lane, Level::warning, "deferred").field("id", "4Kx7").field("bytes", 123).field("tls", true).field("seconds", milliseconds(1500));
    }));
    CHECK(object == nlohmann::json{{"time", "2025-12-01T12:00:00.123Z"}, {"level", "warning"}, {"thread", "shard0"},
                                   {"event", "deferred"}, {"id", "4Kx7"}, {"bytes", 123}, {"tls", true}, {"seconds", 1.5}});
}

TEST_CASE("Values that could be mistaken for something else are quoted and escaped", "[log]") {
    struct { std::string value; std::string logfmt; } const table[] = {
        {"plain-value_1.<a@b>", "plain-value_1.<a@b>"},
        {"", R"("")"},
        {"two words", R"("two words")"},
        {"a=b", R"("a=b")"},
        {"say \"hi\"", R"("say \"hi\"")"},
        {"back\\slash", R"("back\\slash")"},
        {"line\r\nlevel=error", R"("line\r\nlevel=error")"},
        {"tab\t", R"("tab\t")"},
        {std::string("nul\0", 4), R"("nul\u0000")"},
        {"\x1b[31mred\x7f", R"("\u001b[31mred\u007f")"},
        {"gr\xc3\xbc\xc3\x9f", "\"gr\xc3\xbc\xc3\x9f\""},
        {"\xf0\x9f\x93\xa7", "\"\xf0\x9f\x93\xa7\""},
        {"c1 \xc2\x9b", R"("c1 \u00c2\u009b")"},                    // a terminal's escape
        {"latin1 \xfc", R"("latin1 \u00fc")"},
        {"overlong \xc0\xaf", R"("overlong \u00c0\u00af")"},
        {"surrogate \xed\xa0\x80", R"("surrogate \u00ed\u00a0\u0080")"},
        {"torn \xe2\x82", R"("torn \u00e2\u0082")"},
        {"beyond \xf4\x90\x80\x80", R"("beyond \u00f4\u0090\u0080\u0080")"},
    };
    for (const auto& [value, logfmt] : table) {
        INFO(logfmt);
        CHECK(logfmt_value(value) == logfmt);
        CHECK_NOTHROW(json_value(value));                           // valid UTF-8, valid escapes
    }
    CHECK(json_value("say \"hi\"\r\n\t\\") == "say \"hi\"\r\n\t\\");
    CHECK(json_value("gr\xc3\xbc\xc3\x9f") == "gr\xc3\xbc\xc3\x9f");
    CHECK(json_value("\xfc") == "\xc3\xbc");
}

TEST_CASE("A value that is too long is cut, and says so", "[log]") {
    const std::string cut = logfmt_value(std::string(log_value_bytes_max + 1, 'x'));
    CHECK(cut == "\"" + std::string(log_value_bytes_max, 'x') + "...\"");
    CHECK(logfmt_value(std::string(log_value_bytes_max, 'x')) == std::string(log_value_bytes_max, 'x'));
    CHECK(json_value(std::string(5000, '\n')).ends_with("\n..."));
}

TEST_CASE("A line that is too long stays well-formed at every length, and says that it is cut", "[log]") {
    for (size_t length = 0; length < 600; ++length) {
        INFO(length);
        const auto write = [&](LogLane& lane) {
            LogLine(lane, Level::info, "e").field("a", std::string(500, 'a')).field("b", std::string(400, ' ')).field("c", std::string(length, 'c'))
                .field("d", std::string(60, '"')).field("number", uint64_t{18446744073709551615u}).field("seconds", hours(1)).field("last", true);
        };
        const std::string json = line_of(LogFormat::json, write), logfmt = line_of(LogFormat::logfmt, write);
        REQUIRE(json.size() <= log_line_bytes_max);
        REQUIRE(logfmt.size() <= log_line_bytes_max);
        const auto object = nlohmann::json::parse(json);
        CHECK(object.at("a") == std::string(500, 'a'));
        CHECK(object.contains("cut") != object.contains("last"));
        CHECK(logfmt.ends_with(" cut=true") != logfmt.ends_with(" last=true"));
    }
}

TEST_CASE("Times are written in UTC, through seconds, days and leap years", "[log]") {
    struct { int64_t seconds; int64_t ms; const char* text; } const table[] = {
        {0, 0, "1970-01-01T00:00:00.000Z"},          {0, 999, "1970-01-01T00:00:00.999Z"},
        {951'782'400, 5, "2000-02-29T00:00:00.005Z"}, {1'709'251'199, 50, "2024-02-29T23:59:59.050Z"},
        {1'709'251'200, 0, "2024-03-01T00:00:00.000Z"}, {4'102'444'799, 1, "2099-12-31T23:59:59.001Z"},
    };
    Written written;
    Log log(LogFormat::logfmt, Level::info, written.sink());
    LogLane& lane = log.lane("main");
    for (const auto& [second, ms, text] : table) {
        lane.set_time(Wall{second * 1'000'000'000 + ms * 1'000'000});
        LogLine(lane, Level::info, "e");
    }
    log.stop();
    const auto lines = written.lines();
    REQUIRE(lines.size() == std::size(table));
    for (size_t i = 0; i < lines.size(); ++i) CHECK(lines[i].starts_with(std::string("time=") + table[i].text + " "));
}

TEST_CASE("Without a time of its own a lane reads the clock", "[log]") {
    Written written;
    Log log(LogFormat::logfmt, Level::info, written.sink());
    LogLine(log.lane("main"), Level::info, "e");
    log.stop();
    CHECK(written.text().substr(0, 7) == "time=20");
}

TEST_CASE("Lines below the level are not written", "[log]") {
    Written written;
    Log log(LogFormat::logfmt, Level::warning, written.sink());
    LogLane& lane = log.lane("main");
    CHECK_FALSE(lane.enabled(Level::info));
    for (const Level level : {Level::debug, Level::info, Level::warning, Level::error}) LogLine(lane, level, "e").field("n", 1);
    log.stop();
    const auto lines = written.lines();
    REQUIRE(lines.size() == 2);
    CHECK(lines[0].find(" level=warning ") != lines[0].npos);
    CHECK(lines[1].find(" level=error ") != lines[1].npos);
}

TEST_CASE("A full lane drops lines, counts them and says so", "[log]") {
    Written written;
    Log log(LogFormat::logfmt, Level::info, written.sink());
    LogLane& lane = log.lane("shard0");
    constexpr unsigned emitted = 4000;
    for (unsigned i = 0; i < emitted; ++i) LogLine(lane, Level::info, "e").field("i", i).field("filler", std::string(100, 'x'));
    const uint64_t dropped = lane.dropped();
    CHECK(dropped > 0);
    CHECK(log.lines_dropped() == dropped);
    log.start();
    log.stop();
    const auto lines = written.lines();
    CHECK(lines.size() == emitted - dropped + 1);
    size_t reports = 0;
    for (const std::string& line : lines)
        reports += line.ends_with(" level=warning thread=log event=log_lines_dropped from=shard0 lines=" + std::to_string(dropped));
    CHECK(reports == 1);
    CHECK(lines[0].find(" i=0 ") != std::string::npos);             // the oldest are kept
}

TEST_CASE("The lines of a lane are written in their order, across many turns of its ring", "[log]") {
    Written written;
    Log log(LogFormat::logfmt, Level::info, written.sink());
    LogLane& lane = log.lane("shard0");
    log.start();
    unsigned next = 0;
    for (unsigned burst = 0; burst < 40; ++burst) {
        for (unsigned i = 0; i < 500; ++i) {
            LogLine(lane, Level::info, "e").field("i", next).field("filler", std::string(next % 97, 'x'));
            ++next;
        }
        REQUIRE(eventually([&] { return written.text().find(" i=" + std::to_string(next - 1) + " ") != std::string::npos; }));
    }
    log.stop();
    CHECK(lane.dropped() == 0);
    const auto lines = written.lines();
    REQUIRE(lines.size() == next);
    for (unsigned i = 0; i < next; ++i) REQUIRE(lines[i].find(" i=" + std::to_string(i) + " ") != std::string::npos);
}

TEST_CASE("Two threads write at once and no line is torn or lost", "[log]") {
    Written written;
    Log log(LogFormat::json, Level::info, written.sink());
    LogLane* const lanes[] = {&log.lane("a"), &log.lane("b", LogLane::Wake::on_wake)};
    log.start();
    constexpr uint64_t per_thread = 20'000;
    std::vector<std::thread> producers;
    for (LogLane* lane : lanes)
        producers.emplace_back([lane] {
            for (uint64_t i = 0; i < per_thread; ++i) {
                LogLine(*lane, Level::info, "e").field("i", i).field("text", "some \"text\"");
                if (i % 16 == 0) lane->wake();
            }
        });
    for (std::thread& producer : producers) producer.join();
    log.stop();
    uint64_t next[2] = {0, 0}, count[2] = {0, 0};
    for (const std::string& line : written.lines()) {
        const auto object = nlohmann::json::parse(line);
        if (object.at("event") == "log_lines_dropped") continue;
        const size_t which = object.at("thread") == "b";
        const uint64_t i = object.at("i");
        REQUIRE(i >= next[which]);
        next[which] = i + 1;
        ++count[which];
    }
    for (const size_t which : {0, 1}) CHECK(count[which] + lanes[which]->dropped() == per_thread);
}

TEST_CASE("A sleeping log is woken by the next line", "[log]") {
    Written written;
    Log log(LogFormat::logfmt, Level::info, written.sink());
    LogLane& each = log.lane("each");
    LogLane& told = log.lane("told", LogLane::Wake::on_wake);
    log.start();
    for (int i = 0; i < 200; ++i) {
        LogLine(each, Level::info, "e").field("i", i).field("end", "!");
        REQUIRE(eventually([&] { return written.text().find("thread=each event=e i=" + std::to_string(i) + " ") != std::string::npos; }));
        LogLine(told, Level::info, "e").field("i", i).field("end", "!");
        told.wake();
        REQUIRE(eventually([&] { return written.text().find("thread=told event=e i=" + std::to_string(i) + " ") != std::string::npos; }));
    }
}

TEST_CASE("Stopping writes everything that was emitted, and may be done twice", "[log]") {
    for (int round = 0; round < 50; ++round) {
        Written written;
        Log log(LogFormat::logfmt, Level::info, written.sink());
        LogLane& lane = log.lane("main");
        LogLine(lane, Level::info, "before_start");
        log.start();
        for (int i = 0; i < 100; ++i) LogLine(lane, Level::info, "e");
        log.stop();
        REQUIRE(written.lines().size() == 101);
        log.stop();
        REQUIRE(written.lines().size() == 101);
    }
}

TEST_CASE("The cost of a line to its thread", "[log][.benchmark]") {
    std::atomic<uint64_t> written{0};
    Log log(LogFormat::logfmt, Level::info, [&](std::string_view lines) { written += static_cast<uint64_t>(std::count(lines.begin(), lines.end(), '\n')); });
    LogLane& lane = log.lane("shard0", LogLane::Wake::on_wake);
    lane.set_time(noon);
    log.start();
    constexpr uint64_t turns = 2000, lines_per_turn = 50;
    std::chrono::nanoseconds took{0};
    for (uint64_t turn = 0; turn < turns; ++turn) {
        const auto begin = std::chrono::steady_clock::now();
        for (uint64_t i = 0; i < lines_per_turn; ++i)
            LogLine(lane, Level::info, "accepted").field("id", "0123456789abcdef").field("client", "192.0.2.7").field("from", "sender@example.org")
                .field("recipients", 1).field("bytes", 5000 + i).field("seconds", microseconds(static_cast<int64_t>(turn)));
        lane.wake();
        took += std::chrono::steady_clock::now() - begin;
        REQUIRE(eventually([&] { return written == (turn + 1) * lines_per_turn; }));
    }
    WARN(took.count() / static_cast<int64_t>(turns * lines_per_turn) << " ns a line");
}
