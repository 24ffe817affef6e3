// Group commit, depth one, without a timer: while one batch is being written the next one forms (README.md, "Commit").
//
// The batch that formed is written at the end of the turn when nothing is in flight.  Writers that find no room wait in
// order.  Records ride with messages; alone they wait a moment for company.  A batch that fails fails its segment: exactly
// its messages are refused, its records go with a later batch, and writing goes on in another segment.
//
// Threads: the shard.
#pragma once

#include <optional>
#include <vector>

#include "storage/batch.hpp"
#include "storage/commit_sink.hpp"
#include "storage/record_queue.hpp"
#include "storage/staging.hpp"
#include "storage/writer_state.hpp"

namespace postern::storage {

class CommitEvents {
public:
    // The writer's message is over, one way or the other; its state may be reused.
    virtual void on_outcome(WriterState& writer, Result<MessageIndex, SpoolError> outcome) = 0;
    // Durable, but the writer was abandoned meanwhile.
    virtual void on_unwanted(MessageIndex message) = 0;
    virtual void on_record_durable(uint32_t subject, uint32_t completes) = 0;
    virtual void on_batch_over() = 0;       // the last call for a batch, good or bad

protected:
    ~CommitEvents() = default;
};

class Committer final : private ring::TurnHook, private CommitSink::Owner, private ring::TimerHandler {
public:
    Committer(ring::Loop& loop, const SpoolConfig& config, SinkKind sink, SegmentPool& segments, Staging& staging,
              ChunkPool& chunks, MessageTable& messages, RecordQueue& records, CommitEvents& events, SpoolProbe& probe);

    // The message is complete; its slices and envelope are copied before this returns.  The outcome comes as an event.
    void commit(WriterState& writer);
    // Octets of an open message should go to the log; does so now if there is room, else later.
    void spill(WriterState& writer);
    // Nobody waits for it any more, nor does anything here refer to it afterwards.
    void forget(WriterState& writer);
    void records_added();

    bool healthy() const { return failures_ < failures_max; }
    bool idle() const { return !sink_.busy() && forming().batch.empty() && waiting_.empty() && records_.empty(); }
    void flush();                           // records do not wait for company
    void on_segment_ready() { schedule(); }
    void on_tick();
    bool in_flight() const { return sink_.busy(); }
    bool blocked() const { return no_segment_since_.has_value(); }  // something to write, and no segment to write to
    void close() { closed_ = true; }                                    // nothing more is written

private:
    static constexpr int failures_max = 3;
    static constexpr uint32_t records_reserve = 64_KiB;
    static constexpr Duration segment_wait_max = seconds(5);
    static constexpr unsigned passed_over_max = 8;
    static constexpr Duration company_wait = milliseconds(20);

    struct MessageEntry {
        WriterState* writer;                // null: abandoned meanwhile
        size_t frame;
        MessageIndex message = no_message;
        bool has_open_extents = false;      // some lie in the same batch
    };
    struct FragmentEntry {
        WriterState* writer;
        size_t part;
        size_t frame;
    };
    struct Gathered {
        Batch batch;
        std::vector<MessageEntry> messages;
        std::vector<FragmentEntry> fragments;
        std::optional<size_t> records_frame;
        void reset();
    };
    enum class Placed : uint8_t { yes, no_room, failed };

    Gathered& forming() { return gathered_[forming_]; }
    const Gathered& forming() const { return gathered_[forming_]; }
    Gathered& flight() { return gathered_[1 - forming_]; }

    void schedule() { loop_.at_end_of_turn(*this); }
    void on_end_of_turn() override;
    void on_timer(ring::Timer& timer) override;
    void on_batch_written(int error) override;

    void begin();
    bool fits(uint64_t payload_bytes, uint64_t index_bytes) const;
    Placed place(WriterState& writer);
    Placed place_fragments(WriterState& writer, uint64_t keep);
    void place_fragment(WriterState& writer, uint32_t bytes);
    Placed place_message(WriterState& writer);
    void place_waiting();
    void place_records();
    void refuse(WriterState& writer);

    void submit();
    void resolve_extents(uint64_t epoch, uint32_t offset);
    void succeed();
    void add_messages();
    void fail_batch(Gathered& gathered, SpoolError why);
    void give_up_waiting();

    ring::Loop& loop_;
    const SpoolConfig& config_;
    SegmentPool& segments_;
    Staging& staging_;
    ChunkPool& chunks_;
    MessageTable& messages_;
    RecordQueue& records_;
    CommitEvents& events_;
    SpoolProbe& probe_;
    CommitSink sink_;
    ring::Timer company_timer_;
    Gathered gathered_[2];
    unsigned forming_ = 0;
    IntrusiveList<WriterState, WaitingTag> waiting_;
    std::span<const char> flight_octets_;
    uint64_t flight_bytes_ = 0;
    uint64_t room_ = 0;                     // octets that messages may still take, as known when the batch began
    Monotonic flight_began_;
    std::optional<Monotonic> no_segment_since_;
    bool records_due_ = false;
    int failures_ = 0;                      // in a row
    bool probing_ = false;
    bool closed_ = false;
};

}  // namespace postern::storage
