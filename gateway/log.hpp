// Structured log lines off the shard's thread: a line is built on the stack, copied into its thread's lane and written by the
// log's own thread.  The producer never waits, never allocates, never calls the OS but to wake the log's thread when that sleeps.
//
//     LogLine(lane, Level::info, "accepted").field("id", id).field("bytes", bytes).field("seconds", took);
//
// writes  time=2026-12-01T10:00:00.123Z level=info thread=shard0 event=accepted id=... bytes=... seconds=0.001234
// or the same as one JSON object.  When a lane is full the line is dropped and counted, and the log says so later with the
// event log_lines_dropped.
#pragma once

#include <array>
#include <atomic>
#include <charconv>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.hpp"
#include "ring/base/units.hpp"
#include "ring/threads.hpp"

namespace postern::gateway {

using Level = config::LogLevel;
using LogFormat = config::LogFormat;

constexpr size_t log_line_bytes_max = 1536;
constexpr size_t log_value_bytes_max = 512;             // of one field's value; what is longer is cut and ends in "..."
constexpr size_t log_lane_bytes = 256 * 1024;

// One byte ring from one producing thread to the log's thread.  Made by Log::lane().
class LogLane {
public:
    // each_line: every line wakes a sleeping log thread.  on_wake: only wake() does, so that a shard pays for one wake-up a
    // turn at most; its loop must call wake() at the end of the turn.
    enum class Wake : uint8_t { each_line, on_wake };

    LogLane(const LogLane&) = delete;
    LogLane& operator=(const LogLane&) = delete;

    // The producer's thread.
    bool enabled(Level level) const { return level >= min_level_; }
    void set_time(Wall now) { now_ = now; }             // for the lines that follow; never set: the clock is read for each
    void wake();
    uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }       // any thread

private:
    friend class Log;
    friend class LogLine;
    LogLane(std::string_view thread_name, LogFormat format, Level min_level, Wake wake, std::atomic<int>& log_sleeps);

    void push(std::string_view line);
    bool empty() const { return head_.load(std::memory_order_relaxed) == tail_.load(std::memory_order_seq_cst); }
    size_t drain(std::string& into);                    // the log's thread: appends lines, returns how many
    std::string_view time_text();                       // of now_, RFC 3339 with milliseconds
    void copy_in(uint64_t position, const char* from, size_t bytes);
    void copy_out(uint64_t position, char* to, size_t bytes) const;

    const std::string thread_name_;
    const LogFormat format_;
    const Level min_level_;
    const Wake wake_;
    std::atomic<int>& log_sleeps_;
    std::unique_ptr<char[]> ring_ = std::make_unique<char[]>(log_lane_bytes);

    Wall now_{-1};
    int64_t second_shown_ = -1;
    std::array<char, 24> time_text_{};
    uint64_t dropped_reported_ = 0;                     // the log's thread
    std::atomic<uint64_t> dropped_{0};
    alignas(64) std::atomic<uint64_t> head_{0};         // written by the log's thread
    alignas(64) std::atomic<uint64_t> tail_{0};         // written by the producer
    uint64_t seen_head_ = 0;                            // the producer's last look at head_
};

// One line; it is emitted when the object dies, at the end of the statement.  Below the lane's level it does nothing at all.
// Names are ours and plain; values may be anything: quotes, controls and what is not UTF-8 are escaped.
class LogLine {
public:
    LogLine(LogLane& lane, Level level, std::string_view event) : lane_(lane), active_(lane.enabled(level)) {
        if (active_) begin(level, event);
    }
    ~LogLine() {
        if (active_) emit();
    }
    LogLine(const LogLine&) = delete;
    LogLine& operator=(const LogLine&) = delete;

    LogLine& field(std::string_view name, std::string_view value) {
        if (active_) put_text(name, value);
        return *this;
    }
    LogLine& field(std::string_view name, Duration value) {             // in seconds, with microseconds
        if (active_) put_duration(name, value);
        return *this;
    }
    LogLine& field(std::string_view name, std::integral auto value) {
        if (!active_) return *this;
        if constexpr (std::same_as<decltype(value), bool>) {
            put_plain(name, value ? "true" : "false");
        } else {
            char digits[24];
            put_plain(name, {digits, std::to_chars(digits, digits + sizeof digits, value).ptr});
        }
        return *this;
    }

private:
    void begin(Level level, std::string_view event);
    void emit();
    void put_text(std::string_view name, std::string_view value);
    void put_duration(std::string_view name, Duration value);
    void put_plain(std::string_view name, std::string_view value);
    bool put_name(std::string_view name, size_t value_bytes);           // false: there is no room, the line is marked as cut
    void put(std::string_view octets);
    void put_escaped(std::string_view value);

    LogLane& lane_;
    bool active_;
    bool cut_ = false;
    size_t length_ = 0;
    char text_[log_line_bytes_max];
};

// Takes whole lines, each with its line end.  Called by the log's thread only.
using LogSink = std::function<void(std::string_view lines)>;
LogSink standard_error_sink();

class Log {
public:
    Log(LogFormat format, Level min_level, LogSink sink);
    ~Log();                                             // stop()
    Log(const Log&) = delete;
    Log& operator=(const Log&) = delete;

    // The lane of one thread; lives as long as the log.  All lanes are made before start().
    LogLane& lane(std::string_view thread_name, LogLane::Wake wake = LogLane::Wake::each_line);
    void start();
    // Writes everything that was emitted before the call.  Also without start().
    void stop();
    uint64_t lines_dropped() const;                     // of all lanes

private:
    void run();
    bool write_out();                                   // one round over the lanes; false when there was nothing
    void report_drops(LogLane& lane);

    const LogFormat format_;
    const Level min_level_;
    const LogSink sink_;
    std::vector<std::unique_ptr<LogLane>> lanes_;
    std::string batch_;                                 // what one round writes at once
    std::atomic<int> sleeps_{0};                        // 1: the thread waits for it to become 0
    std::atomic<bool> stopping_{false};
    std::unique_ptr<LogLane> own_lane_;                 // for what the log itself has to say
    std::unique_ptr<ring::Thread> thread_;
};

}  // namespace postern::gateway
