// The segments of one shard: which is being written, which are ready, full, or on their way to be used again.
//
//     creating -> spare -> active -> sealed -> recycling -> spare        (README.md has the diagram)
//                             `----> failed -> removing -> gone
//
// A segment is drained when nothing pins it: no message whose record is not durable, no fragment of an unfinished message,
// no reader.  The owner then settles what the segment's records say about others (on_drained), and calls reuse().
//
// Threads: the shard; files are made, re-headed, indexed and removed by housekeeping jobs.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "ring/loop.hpp"
#include "ring/threads.hpp"
#include "storage/frame.hpp"
#include "storage/message_table.hpp"
#include "storage/probe.hpp"
#include "storage/segment_reader.hpp"
#include "storage/spool.hpp"

namespace postern::storage {

constexpr uint32_t no_segment = UINT32_MAX;

struct Segment {
    enum class State : uint8_t { creating, spare, active, sealed, recycling, failed, removing, gone };
    std::string folder, name;
    UniqueFd fd;
    State state = State::gone;
    bool job_running = false;
    bool draining = false;              // on_drained() was told
    uint64_t bytes = 0;
    uint64_t epoch = 0;
    uint64_t sequence = 0;
    uint64_t life = 0;                  // the how manieth to become active here; 0: not in this process
    uint32_t end = batches_begin;       // where the next batch goes
    uint64_t batch_count = 0;
    uint32_t message_total = 0;         // ordinals given
    uint32_t pins = 0;
    uint32_t first_message = no_message, last_message = no_message;     // not over yet, in order
    struct Subject {
        uint32_t segment;
        uint64_t epoch;
        bool operator==(const Subject&) const = default;
    };
    std::vector<Subject> subjects;      // segments whose messages the records in here are about
    std::string path() const { return folder + "/" + name; }
};

class SegmentEvents {
public:
    virtual void on_segment_ready() = 0;
    virtual void on_drained(uint32_t segment) = 0;  // sealed or failed, and nothing pins it any more

protected:
    ~SegmentEvents() = default;
};

class SegmentPool {
public:
    SegmentPool(ring::Loop& loop, ring::Workers& housekeeping, const SpoolConfig& config, uint32_t boot, bool direct,
                SegmentEvents& events, SpoolProbe& probe);
    ~SegmentPool();
    void wait_for_work();                           // before the end: jobs that run refer to us

    // Start-up, blocking.  adopt(): a segment that recovery found; it is sealed.  prepare(): at least one segment is ready
    // afterwards, or the errno why not.
    uint32_t adopt(Segment segment);
    int prepare();
    void start_service();                           // lets housekeeping begin

    Segment& operator[](uint32_t index) { return *segments_[index]; }
    size_t count() const { return segments_.size(); }
    uint32_t active() const { return active_; }
    uint32_t find(uint64_t epoch) const;            // no_segment when there is none (any more)

    // A place for a batch of so many octets whose messages and records add so much to the index: the active segment,
    // after sealing it and taking a spare if need be.  False: no spare is ready.
    bool make_room(uint64_t batch_bytes, uint64_t index_bytes);
    // The batch at the active segment's end is durable.
    void advance(uint64_t batch_bytes, uint32_t message_count);
    void fail_active();
    IndexBuilder& index() { return index_; }        // of the active segment

    void pin(uint32_t segment) { ++(*this)[segment].pins; }
    void unpin(uint32_t segment);
    void check_drained(uint32_t segment);
    void link(MessageTable& messages, uint32_t message);
    void unlink(MessageTable& messages, uint32_t message);
    // A drained segment begins a new life, or goes away when there are enough.
    void reuse(uint32_t segment);

    // For messages: the active segment's rest, spares but one (kept for records), what can still be created.
    uint64_t bytes_available() const;
    uint64_t bytes_usable(uint64_t segment_bytes) const { return segment_bytes - segment_bytes / 32 - 2 * block_bytes; }
    bool can_grow() const;
    void on_tick();                                 // once a second: looks at the space, tries again what did not work
    void fill_status(SpoolStatus& status) const;

private:
    class Work;
    friend class Work;
    static constexpr unsigned slack = 2;            // idle segments beyond spare_segments before they are removed

    SegmentHeader new_header(uint64_t bytes);
    void seal_active();
    void keep_spares();
    void activate(uint32_t segment);
    void begin_life(Segment& segment, const SegmentHeader& header);
    int open_segment(Segment& segment);
    bool start(std::unique_ptr<Work> work);
    void on_work_done(Work& work);
    uint32_t unused_slot();
    unsigned idle_count() const { return static_cast<unsigned>(spares_.size()) + soon_; }

    ring::Loop& loop_;
    ring::Workers& housekeeping_;
    const SpoolConfig& config_;
    uint32_t boot_;
    bool direct_;
    SegmentEvents& events_;
    SpoolProbe& probe_;
    std::string folder_;
    std::vector<std::unique_ptr<Segment>> segments_;
    std::deque<uint32_t> spares_;
    std::vector<std::unique_ptr<Work>> running_;
    unsigned soon_ = 0;                             // being created or recycled: spares before long
    uint32_t active_ = no_segment;
    uint64_t next_sequence_ = 1;
    uint64_t lives_ = 0;
    uint64_t bytes_free_ = 0;                       // of the file system, when last looked at
    bool creation_failed_ = false;                  // until the next tick
    IndexBuilder index_;
};

}  // namespace postern::storage
