#include "gateway/log.hpp"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <algorithm>
#include <cstring>

#include "ring/base/check.hpp"
#include "ring/clock.hpp"

namespace postern::gateway {
namespace {

constexpr size_t round_bytes_max = 64 * 1024;           // taken from one lane before the next has its turn
using LineLength = uint16_t;                            // before each line in the ring
static_assert(log_line_bytes_max <= UINT16_MAX);
static_assert((log_lane_bytes & (log_lane_bytes - 1)) == 0, "positions are taken modulo the size with a mask");

}  // namespace

LogLane::LogLane(std::string_view thread_name, LogFormat format, Level min_level, Wake wake, std::atomic<int>& log_sleeps)
    : thread_name_(thread_name), format_(format), min_level_(min_level), wake_(wake), log_sleeps_(log_sleeps) {}

// A sleeping log thread has looked at every lane after it set sleeps_; a producer looks at sleeps_ after it has moved its
// tail.  Both are sequentially consistent, so one of the two sees the other: no line is left lying.
void LogLane::wake() {
    if (log_sleeps_.load(std::memory_order_seq_cst) == 0 || log_sleeps_.exchange(0) == 0) return;
    log_sleeps_.notify_one();
}

void LogLane::push(std::string_view line) {
    const uint64_t tail = tail_.load(std::memory_order_relaxed);
    const size_t bytes = sizeof(LineLength) + line.size();
    if (tail + bytes - seen_head_ > log_lane_bytes) {
        seen_head_ = head_.load(std::memory_order_acquire);
        if (tail + bytes - seen_head_ > log_lane_bytes) {
            dropped_.store(dropped_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
            return;
        }
    }
    const auto length = static_cast<LineLength>(line.size());
    copy_in(tail, reinterpret_cast<const char*>(&length), sizeof length);
    copy_in(tail + sizeof length, line.data(), line.size());
    tail_.store(tail + bytes, std::memory_order_seq_cst);
    if (wake_ == Wake::each_line) wake();
}

size_t LogLane::drain(std::string& into) {
    const uint64_t tail = tail_.load(std::memory_order_acquire);
    uint64_t head = head_.load(std::memory_order_relaxed);
    size_t lines = 0;
    for (const uint64_t begin = head; head != tail && head - begin < round_bytes_max; ++lines) {
        LineLength length = 0;
        copy_out(head, reinterpret_cast<char*>(&length), sizeof length);
        const size_t old_size = into.size();
        into.resize(old_size + length + 1, '\n');
        copy_out(head + sizeof length, into.data() + old_size, length);
        head += sizeof length + length;
    }
    head_.store(head, std::memory_order_release);
    return lines;
}

void LogLane::copy_in(uint64_t position, const char* from, size_t bytes) {
    const size_t offset = position & (log_lane_bytes - 1);
    const size_t first = std::min(bytes, log_lane_bytes - offset);
    std::memcpy(ring_.get() + offset, from, first);
    std::memcpy(ring_.get(), from + first, bytes - first);
}

void LogLane::copy_out(uint64_t position, char* to, size_t bytes) const {
    const size_t offset = position & (log_lane_bytes - 1);
    const size_t first = std::min(bytes, log_lane_bytes - offset);
    std::memcpy(to, ring_.get() + offset, first);
    std::memcpy(to + first, ring_.get(), bytes - first);
}

// spdlog writes, with its lock, flush and error handling; a batch of lines is one message to it.
LogSink standard_error_sink() {
    auto logger = std::make_shared<spdlog::logger>("postern", std::make_shared<spdlog::sinks::stderr_sink_st>());
    logger->set_pattern("%v");
    return [logger = std::move(logger)](std::string_view lines) {
        lines.remove_suffix(1);         // spdlog puts the last line end
        logger->log(spdlog::level::critical, spdlog::string_view_t(lines.data(), lines.size()));
    };
}

Log::Log(LogFormat format, Level min_level, LogSink sink)
    : format_(format), min_level_(min_level), sink_(std::move(sink)),
      own_lane_(new LogLane("log", format, min_level, LogLane::Wake::on_wake, sleeps_)) {}

Log::~Log() { stop(); }

LogLane& Log::lane(std::string_view thread_name, LogLane::Wake wake) {
    CHECK_INVARIANT(!thread_);          // the thread goes over the lanes without a lock
    lanes_.emplace_back(new LogLane(thread_name, format_, min_level_, wake, sleeps_));
    return *lanes_.back();
}

void Log::start() {
    CHECK_INVARIANT(!thread_);
    thread_ = std::make_unique<ring::Thread>("log", [this] { run(); });
}

void Log::stop() {
    if (thread_) {
        stopping_.store(true);
        own_lane_->wake();
        thread_.reset();
        stopping_.store(false);
    }
    while (write_out()) {}
}

void Log::run() {
    for (;;) {
        const bool last = stopping_.load();             // before the round: what was emitted before stop() is in it
        if (write_out()) continue;
        if (last) return;
        sleeps_.store(1, std::memory_order_seq_cst);
        const bool quiet = std::all_of(lanes_.begin(), lanes_.end(), [](const auto& lane) { return lane->empty(); });
        if (quiet && !stopping_.load()) sleeps_.wait(1);
        sleeps_.store(0);
    }
}

bool Log::write_out() {
    batch_.clear();
    size_t lines = 0;
    for (const auto& lane : lanes_) {
        lines += lane->drain(batch_);
        report_drops(*lane);
    }
    lines += own_lane_->drain(batch_);
    if (lines) sink_(batch_);
    return lines > 0;
}

void Log::report_drops(LogLane& lane) {
    const uint64_t dropped = lane.dropped();
    if (dropped == lane.dropped_reported_) return;
    LogLine(*own_lane_, Level::warning, "log_lines_dropped").field("from", lane.thread_name_).field("lines", dropped - lane.dropped_reported_);
    lane.dropped_reported_ = dropped;
}

uint64_t Log::lines_dropped() const {
    uint64_t lines = 0;
    for (const auto& lane : lanes_) lines += lane->dropped();
    return lines;
}

}  // namespace postern::gateway
