// The parts of one shard's spool, put together.  Seen by the spool's own sources, and by tests that need to hurt it.
#pragma once

#include <memory>
#include <vector>

#include "storage/committer.hpp"
#include "storage/segments.hpp"

namespace postern::storage {

struct MessageWriter::State : WriterState {};

struct Spool::Impl final : SegmentEvents, CommitEvents, ring::TimerHandler, ring::TurnHook {
    Impl(ring::Loop& used_loop, ring::Workers& housekeeping, const SpoolConfig& spool_config, uint32_t boot_number,
         SinkKind kind, SpoolProbe& events);
    ~Impl();

    // ---- Start-up (open.cpp); pool_index: where recovery's segments are in the pool
    void take_over(Recovery& found, const std::vector<uint32_t>& pool_index);
    void take_over_message(Recovery& found, const FoundMessage& message, const std::vector<uint32_t>& pool_index);

    // ---- Messages (spool.cpp)
    bool record(MessageIndex message, std::span<const RecipientResult> results);
    void withdraw(MessageIndex message);
    void release(MessageIndex message);
    bool has_room(uint64_t message_bytes) const;
    SpoolStatus status() const;

    // ---- Writers (message_writer.cpp)
    MessageWriter::State* take_state();
    void give_back_state(MessageWriter::State& state);
    void relieve_pressure();
    void on_end_of_turn() override;     // tells those who wait for relief

    // ---- Drained segments (spool.cpp)
    struct Retiring {
        uint32_t segment;
        uint64_t ticket;            // records pushed before it may be reused
    };
    void settle_subjects(uint32_t segment);
    void push_complete_map(uint32_t subject);
    void push_standing(uint32_t subject);
    void reuse_settled();
    void reclaim_unrecorded();

    // SegmentEvents
    void on_segment_ready() override;
    void on_drained(uint32_t segment) override;
    // CommitEvents
    void on_outcome(WriterState& writer, Result<MessageIndex, SpoolError> outcome) override;
    void on_unwanted(MessageIndex message) override;
    void on_record_durable(uint32_t subject, uint32_t completes) override;
    void on_batch_over() override;
    // TimerHandler
    void on_timer(ring::Timer& timer) override;

    ring::Loop& loop;
    const SpoolConfig config;
    const uint32_t boot;
    const SinkKind sink;
    SpoolProbe& probe;
    Staging staging;
    ChunkPool chunks;
    MessageTable messages;
    RecordQueue records;
    SegmentPool segments;
    Committer committer;
    ring::Timer tick;
    RecoveryReport report;
    std::vector<RecoveredMessage> recovered;
    uint64_t ids_given = 0;
    uint64_t held = 0;
    std::vector<std::unique_ptr<MessageWriter::State>> writer_states;
    std::vector<MessageWriter::State*> free_states;
    IntrusiveList<WriterState, OpenTag> writers_with_chunks;    // the longest idle first
    IntrusiveList<Relief, Relief> waiting_for_relief;
    std::vector<Retiring> retiring;
    uint32_t reads_in_flight = 0;
};

}  // namespace postern::storage
