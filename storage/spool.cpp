#include "storage/spool.hpp"

#include <algorithm>

#include "storage/spool_impl.hpp"

namespace postern::storage {

Spool::Impl::Impl(ring::Loop& used_loop, ring::Workers& housekeeping, const SpoolConfig& spool_config,
                  uint32_t boot_number, SinkKind kind, SpoolProbe& events)
    : loop(used_loop),
      config(spool_config),
      boot(boot_number),
      sink(kind),
      probe(events),
      staging(loop.ring().staging()),
      chunks(config.chunk_bytes_max),
      segments(loop, housekeeping, config, boot, kind == SinkKind::direct, *this, probe),
      committer(loop, config, kind, segments, staging, chunks, messages, records, *this, probe),
      tick(*this) {
    loop.arm(tick, seconds(1));
}

// The kernel may still write from our staging memory or read into a reader's buffer.
Spool::Impl::~Impl() {
    tick.cancel();
    committer.close();
    for (int turns = 0; (committer.in_flight() || reads_in_flight) && turns < 1000; ++turns)
        loop.run_turn(milliseconds(5));
    segments.wait_for_work();
}

Spool::Spool(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Spool::~Spool() = default;

// ---- Asking ---------------------------------------------------------------------------------------------------------------

const Spool::RecoveryReport& Spool::recovery() const { return impl_->report; }
QueueId Spool::next_id() {
    // A start owns several boot numbers (directory.cpp): the counter runs over into them.
    const uint64_t number = ++impl_->ids_given;
    const uint64_t boot = impl_->boot + (number >> 32);
    return {(boot & 0xffffff) << 40 | uint64_t{impl_->config.shard & 0xff} << 32 | (number & 0xffffffff)};
}
bool Spool::has_room(uint64_t bytes) const { return impl_->has_room(bytes); }
bool Spool::healthy() const { return impl_->committer.healthy(); }
bool Spool::congested() const { return impl_->chunks.exhausted(); }
void Spool::wait_for_relief(Relief& relief) {
    if (!relief.linked()) impl_->waiting_for_relief.push_back(relief);
}
QueueId Spool::id_of(MessageIndex message) const { return {impl_->messages[message].queue_id}; }
Wall Spool::received_of(MessageIndex message) const { return {impl_->messages[message].received_ns}; }
RecipientState Spool::state_of(MessageIndex message, uint32_t recipient) const {
    switch (impl_->messages.peek(message, recipient).state) {
        case RecipientSlot::delivered: return RecipientState::delivered;
        case RecipientSlot::failed: return RecipientState::failed;
        case RecipientSlot::pending: break;
    }
    return RecipientState::pending;
}
SpoolStatus Spool::status() const { return impl_->status(); }
bool Spool::flushed() const {
    impl_->committer.flush();
    return impl_->committer.idle();
}
void Spool::for_each_recovered(const std::function<void(const RecoveredMessage&)>& visit) {
    for (const RecoveredMessage& message : std::exchange(impl_->recovered, {})) visit(message);
}
bool Spool::record(MessageIndex message, std::span<const RecipientResult> results) {
    return impl_->record(message, results);
}

bool Spool::Impl::has_room(uint64_t message_bytes) const {
    constexpr uint64_t overhead = 64_KiB;       // envelope, frames, padding
    return message_bytes + overhead + chunks.bytes_used() <= segments.bytes_available();
}

SpoolStatus Spool::Impl::status() const {
    SpoolStatus status;
    status.sink = sink;
    status.healthy = committer.healthy();
    segments.fill_status(status);
    status.messages = messages.size();
    status.messages_held = held;
    status.chunk_bytes = chunks.bytes_used();
    const Segment* oldest = nullptr;
    for (uint32_t i = 0; i < segments.count(); ++i) {
        const Segment& segment = const_cast<SegmentPool&>(segments)[i];
        if (segment.first_message != no_message && (!oldest || segment.sequence < oldest->sequence)) oldest = &segment;
    }
    for (uint32_t at = oldest ? oldest->first_message : no_message; at != no_message; at = messages[at].next)
        if (messages[at].state == MessageRow::State::pending &&
            (status.oldest_received.ns == 0 || messages[at].received_ns < status.oldest_received.ns))
            status.oldest_received = {messages[at].received_ns};
    return status;
}

// ---- Results --------------------------------------------------------------------------------------------------------------

bool Spool::Impl::record(MessageIndex message, std::span<const RecipientResult> results) {
    CHECK_INVARIANT(messages.valid(message));
    MessageRow& row = messages[message];
    const uint32_t subject = row.segment;
    const uint64_t epoch = segments[subject].epoch;
    for (const RecipientResult& result : results) {
        CHECK_INVARIANT(result.recipient < row.recipient_count);
        if (row.state != MessageRow::State::pending) break;
        if (messages.peek(message, result.recipient).state != RecipientSlot::pending) continue;     // final is final
        RecordHeader header;
        header.kind = static_cast<uint8_t>(RecordKind::recipient);
        header.attempt = result.attempt;
        header.epoch = epoch;
        header.ordinal = row.ordinal;
        header.recipient = result.recipient;
        header.reply_code = result.reply_code;
        switch (result.outcome) {
            case RecipientOutcome::delivered: header.outcome = static_cast<uint8_t>(RecordOutcome::delivered); break;
            case RecipientOutcome::failed: header.outcome = static_cast<uint8_t>(RecordOutcome::failed); break;
            case RecipientOutcome::deferred:
                header.outcome = static_cast<uint8_t>(RecordOutcome::deferred);
                header.until_ns = result.until.ns;
                break;
        }
        merge(messages.slot(message, result.recipient), header);
        row.pending_count -= result.outcome != RecipientOutcome::deferred;
        row.any_failed |= result.outcome == RecipientOutcome::failed;
        uint32_t completes = no_message;
        if (row.pending_count == 0) {
            row.state = row.any_failed ? MessageRow::State::held : MessageRow::State::completing;
            held += row.any_failed;
            if (!row.any_failed) completes = message;
        }
        records.push(header, result.diagnostic.substr(0, diagnostic_bytes_max), subject, completes);
    }
    committer.records_added();
    return row.state != MessageRow::State::pending;
}

// Its client was never told: it is as if it had not been taken, and only the client may send it again.
void Spool::Impl::withdraw(MessageIndex message) {
    MessageRow& row = messages[message];
    row.state = MessageRow::State::completing;
    RecordHeader header;
    header.kind = static_cast<uint8_t>(RecordKind::withdrawn);
    header.epoch = segments[row.segment].epoch;
    header.ordinal = row.ordinal;
    records.push(header, {}, row.segment, message);
    committer.records_added();
}

void Spool::Impl::release(MessageIndex message) {
    const MessageRow& row = messages[message];
    if (row.has_extents)
        for (const uint32_t segment : messages.extent_segments(message)) segments.unpin(segment);
    segments.unlink(messages, message);
    messages.release(message);
}

// ---- Drained segments ---------------------------------------------------------------------------------------------------

// Nothing needs the octets of this segment any more, but its records may still be all that tells of other segments'
// messages.  What they say is written again, as it stands now; once that is durable the segment can go (S8).
void Spool::Impl::settle_subjects(uint32_t segment) {
    const auto subjects = std::exchange(segments[segment].subjects, {});
    for (const Segment::Subject& subject : subjects) {
        const Segment& about = segments[subject.segment];
        if (about.epoch != subject.epoch || about.state == Segment::State::gone) continue;      // it went before
        push_complete_map(subject.segment);
        push_standing(subject.segment);
    }
}

void Spool::Impl::push_complete_map(uint32_t subject) {
    const Segment& about = segments[subject];
    std::string map((about.message_total + 7) / 8, '\xff');
    if (about.message_total % 8) map.back() = static_cast<char>((1u << about.message_total % 8) - 1);
    for (uint32_t at = about.first_message; at != no_message; at = messages[at].next) {
        const MessageRow& row = messages[at];
        if (row.state == MessageRow::State::completing) continue;
        map[row.ordinal / 8] = static_cast<char>(map[row.ordinal / 8] & ~(1 << row.ordinal % 8));
    }
    RecordHeader header;
    header.kind = static_cast<uint8_t>(RecordKind::complete_map);
    header.epoch = about.epoch;
    header.ordinal = about.message_total;
    records.push(header, map, subject);
}

// The recipients of its messages of whom something is known.
void Spool::Impl::push_standing(uint32_t subject) {
    const Segment& about = segments[subject];
    for (uint32_t at = about.first_message; at != no_message; at = messages[at].next) {
        const MessageRow& row = messages[at];
        if (row.state == MessageRow::State::completing || (row.recipient_count > 1 && !row.has_slots)) continue;
        for (uint32_t recipient = 0; recipient < row.recipient_count; ++recipient) {
            const RecipientSlot slot = messages.peek(at, recipient);
            if (slot.state == RecipientSlot::pending && slot.attempt == 0) continue;
            RecordHeader header;
            header.kind = static_cast<uint8_t>(RecordKind::recipient);
            const auto outcome = slot.state == RecipientSlot::delivered ? RecordOutcome::delivered
                                 : slot.state == RecipientSlot::failed  ? RecordOutcome::failed
                                                                        : RecordOutcome::deferred;
            header.outcome = static_cast<uint8_t>(outcome);
            header.attempt = slot.attempt;
            header.epoch = about.epoch;
            header.ordinal = row.ordinal;
            header.recipient = recipient;
            header.reply_code = slot.reply_code;
            header.until_ns = int64_t{slot.until_s} * 1'000'000'000;
            records.push(header, {}, subject);
        }
    }
}

void Spool::Impl::reuse_settled() {
    for (size_t i = 0; i < retiring.size();) {
        if (retiring[i].ticket > records.durable()) {
            ++i;
            continue;
        }
        const uint32_t segment = retiring[i].segment;
        retiring.erase(retiring.begin() + static_cast<ptrdiff_t>(i));
        segments.reuse(segment);
    }
}

// No room at all, not even for records: a segment all of whose messages are over goes although that is not durable yet.
// Should we die before it is, nothing is lost; at worst something is delivered again (P2).
void Spool::Impl::reclaim_unrecorded() {
    for (uint32_t i = 0; i < segments.count(); ++i) {
        Segment& segment = segments[i];
        if (segment.state != Segment::State::sealed || segment.job_running) continue;
        uint32_t over = 0;
        for (uint32_t at = segment.first_message; at != no_message; at = messages[at].next)
            over += messages[at].state == MessageRow::State::completing;
        if (over != segment.pins) continue;
        const bool was_draining = std::exchange(segment.draining, true);        // its records are not written again
        if (was_draining) std::erase_if(retiring, [&](const Retiring& entry) { return entry.segment == i; });
        while (segment.first_message != no_message) {
            records.completed_already(segment.first_message);
            release(segment.first_message);
        }
        segments.reuse(i);
        return;
    }
}

// ---- Events ---------------------------------------------------------------------------------------------------------------

void Spool::Impl::on_segment_ready() { committer.on_segment_ready(); }

void Spool::Impl::on_drained(uint32_t segment) {
    const uint64_t before = records.pushed();
    settle_subjects(segment);
    if (records.pushed() == before) return segments.reuse(segment);
    retiring.push_back({segment, records.pushed()});
    committer.records_added();
}

void Spool::Impl::on_outcome(WriterState& writer, Result<MessageIndex, SpoolError> outcome) {
    CommitWaiter* const waiter = writer.waiter;
    give_back_state(static_cast<MessageWriter::State&>(writer));
    waiter->on_committed(outcome);
}

void Spool::Impl::on_unwanted(MessageIndex message) { withdraw(message); }

void Spool::Impl::on_record_durable(uint32_t, uint32_t completes) {
    if (completes != no_message) release(completes);
}

void Spool::Impl::on_batch_over() {
    reuse_settled();
    if (chunks.low()) relieve_pressure();
    if (!waiting_for_relief.empty()) loop.at_end_of_turn(*this);
}

void Spool::Impl::on_timer(ring::Timer&) {
    segments.on_tick();
    if (committer.blocked() && !segments.can_grow()) reclaim_unrecorded();
    committer.on_tick();
    loop.arm(tick, seconds(1));
}

}  // namespace postern::storage
