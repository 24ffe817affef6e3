#include "storage/committer.hpp"

#include <algorithm>

#include "ring/base/check.hpp"

namespace postern::storage {

Committer::Committer(ring::Loop& loop, const SpoolConfig& config, SinkKind sink, SegmentPool& segments,
                     Staging& staging, ChunkPool& chunks, MessageTable& messages, RecordQueue& records,
                     CommitEvents& events, SpoolProbe& probe)
    : loop_(loop),
      config_(config),
      segments_(segments),
      staging_(staging),
      chunks_(chunks),
      messages_(messages),
      records_(records),
      events_(events),
      probe_(probe),
      sink_(loop, sink, *this),
      company_timer_(*this) {}

void Committer::Gathered::reset() {
    batch.reset();
    messages.clear();
    fragments.clear();
    records_frame.reset();
}

// ---- Gathering ----------------------------------------------------------------------------------------------------------

void Committer::commit(WriterState& writer) {
    writer.stage = WriterState::Stage::waiting;
    writer.committed_at = loop_.now();
    schedule();
    const bool first = waiting_.empty() && !writer.failed && healthy();
    if (first && place(writer) == Placed::yes) return;
    if (!writer.failed) {
        writer.owner->settle();
        writer.kept_envelope.assign(writer.envelope);
    }
    writer.slice_count = writer.slice_bytes = 0;        // after a failure nothing of them is wanted
    writer.envelope = writer.kept_envelope;
    if (!writer.waiting_node().linked()) waiting_.push_back(writer);
}

void Committer::spill(WriterState& writer) {
    if (writer.waiting_node().linked() || writer.failed) return;
    schedule();
    if (waiting_.empty() && healthy() && place(writer) != Placed::no_room) return;
    waiting_.push_back(writer);
}

void Committer::forget(WriterState& writer) {
    writer.waiting_node().unlink();
    for (MessageEntry& entry : forming().messages) {
        if (entry.writer != &writer) continue;
        forming().batch.disown(entry.frame);
        entry.writer = nullptr;
    }
    for (MessageEntry& entry : flight().messages)
        if (entry.writer == &writer) entry.writer = nullptr;  // too late to take it back: withdrawn once it is durable
    for (Gathered& gathered : gathered_)
        for (FragmentEntry& entry : gathered.fragments)
            if (entry.writer == &writer) entry.writer = nullptr;
}

void Committer::records_added() {
    if (records_.untaken_bytes() >= records_reserve) records_due_ = true;
    if (records_due_ || !forming().batch.empty()) schedule();
    else if (!company_timer_.armed()) loop_.arm(company_timer_, company_wait);
}

void Committer::flush() {
    if (records_.empty()) return;
    records_due_ = true;
    schedule();
}

void Committer::on_timer(ring::Timer&) { flush(); }

void Committer::begin() {
    Batch& batch = forming().batch;
    if (!batch.begun()) batch.begin(staging_.begin_batch(), config_.segment_bytes);
    if (!batch.empty()) return;
    // Also of a batch that was begun but took nothing, when there was no room: there may be some now.
    const uint64_t available = segments_.bytes_available();
    room_ = available > flight_bytes_ ? available - flight_bytes_ : 0;
}

bool Committer::fits(uint64_t payload_bytes, uint64_t index_bytes) const {
    // Room for the records that wait, as far as it is fair: they may be delayed, but not for ever.
    const uint64_t records = std::max<uint64_t>(records_.front_bytes(), std::min<uint64_t>(records_.untaken_bytes(), records_reserve));
    const uint64_t reserve = records_.empty() ? 0 : std::clamp<uint64_t>(records, block_bytes, 4 * records_reserve);
    return forming().batch.fits(payload_bytes + reserve, index_bytes + reserve);
}

Committer::Placed Committer::place(WriterState& writer) {
    if (writer.failed) return Placed::failed;
    begin();
    if (writer.stage == WriterState::Stage::open) {
        const Placed placed = place_fragments(writer, writer.spill_all ? 0 : fragment_bytes_max - 1);
        if (placed == Placed::yes) writer.spill_all = false;
        return placed;
    }
    const uint64_t tail_room = tail_bytes_max - std::min<uint64_t>(writer.slice_bytes, tail_bytes_max);
    const Placed placed = place_fragments(writer, tail_room);
    return placed == Placed::yes ? place_message(writer) : placed;
}

// Spills from the front until at most `keep` octets are in chunks.
Committer::Placed Committer::place_fragments(WriterState& writer, uint64_t keep) {
    while (writer.chunks.bytes() > keep) {
        const auto bytes = static_cast<uint32_t>(std::min<uint64_t>(writer.chunks.bytes(), fragment_bytes_max));
        if (writer.parts.size() == extents_max) writer.fail(SpoolError::too_fragmented);
        if (bytes > room_) writer.fail(SpoolError::full);
        if (writer.failed) return Placed::failed;
        if (!fits(bytes, 0)) return Placed::no_room;
        place_fragment(writer, bytes);
    }
    return Placed::yes;
}

void Committer::place_fragment(WriterState& writer, uint32_t bytes) {
    Batch& batch = forming().batch;
    auto payload = batch.open_frame(FrameType::fragment, bytes, 0);
    writer.chunks.take(chunks_, bytes, [&](std::string_view piece) { payload.put(piece); });
    const size_t frame = batch.close_frame(payload);
    forming().fragments.push_back({&writer, writer.parts.size(), frame});
    writer.parts.push_back({no_segment, {0, 0, bytes}});
    room_ -= bytes;
    probe_.fragment_spilled(bytes);
}

Committer::Placed Committer::place_message(WriterState& writer) {
    const auto tail = static_cast<uint32_t>(writer.chunks.bytes() + writer.slice_bytes);
    const uint64_t bytes = message_payload_bytes(writer.parts.size(), writer.envelope.size(), tail);
    const uint64_t index_bytes = sizeof(IndexEntry) + writer.parts.size() * sizeof(Extent);
    if (bytes + index_bytes > room_) writer.fail(SpoolError::full);
    if (writer.failed) return Placed::failed;
    if (!fits(bytes, index_bytes)) return Placed::no_room;

    Batch& batch = forming().batch;
    auto payload = batch.open_frame(FrameType::message, static_cast<uint32_t>(bytes), index_bytes);
    payload.put_struct(MessageHeader{.queue_id = writer.id.value,
                                     .received_ns = writer.attributes.received.ns,
                                     .message_bytes = writer.bytes,
                                     .recipient_count = writer.attributes.recipient_count,
                                     .envelope_bytes = static_cast<uint32_t>(writer.envelope.size()),
                                     .tail_bytes = tail,
                                     .extent_count = static_cast<uint16_t>(writer.parts.size()),
                                     .flags = writer.attributes.flags});
    bool open_extents = false;
    for (const WriterState::Part& part : writer.parts) {
        payload.put_struct(part.extent);
        open_extents |= part.segment == no_segment;
    }
    payload.put(writer.envelope);
    writer.chunks.take(chunks_, writer.chunks.bytes(), [&](std::string_view piece) { payload.put(piece); });
    for (uint32_t i = 0; i < writer.slice_count; ++i) payload.put(writer.slices[i]);
    const size_t frame = batch.close_frame(payload);
    writer.slice_count = writer.slice_bytes = 0;
    writer.envelope = {};
    writer.stage = WriterState::Stage::placed;
    forming().messages.push_back({&writer, frame, no_message, open_extents});
    room_ -= bytes + index_bytes;
    return Placed::yes;
}

// In order; a few that do not fit are passed over for smaller ones behind them, so that batches are full when the device is
// the limit.  What was passed over is first in the next batch.
void Committer::place_waiting() {
    unsigned passed_over = 0;
    waiting_.for_each([&](WriterState& writer) {
        if (passed_over == passed_over_max) return;
        if (!healthy()) writer.fail(SpoolError::failed);
        const Placed placed = place(writer);
        if (placed == Placed::no_room) {
            ++passed_over;
            return;
        }
        writer.waiting_node().unlink();
        if (placed == Placed::failed) refuse(writer);
    });
}

void Committer::refuse(WriterState& writer) {
    if (writer.stage != WriterState::Stage::open)
        events_.on_outcome(writer, fail(writer.error));  // an open one finds out by itself
}

void Committer::place_records() {
    Gathered& gathered = forming();
    if (records_.any_taken() || records_.empty()) return;
    begin();
    uint64_t bytes_max = frame_bytes_max - frame_header_bytes;
    while (bytes_max > sizeof(RecordHeader) && !gathered.batch.fits(bytes_max, bytes_max))
        bytes_max = bytes_max / 4 * 3;
    const std::string_view octets = records_.take(bytes_max);
    if (octets.empty()) return;
    auto payload = gathered.batch.open_frame(FrameType::records, static_cast<uint32_t>(octets.size()), octets.size());
    payload.put(octets);
    gathered.records_frame = gathered.batch.close_frame(payload);
}

// ---- Writing ------------------------------------------------------------------------------------------------------------

void Committer::on_end_of_turn() {
    place_waiting();
    submit();
}

void Committer::submit() {
    if (sink_.busy() || closed_) return;
    if (!healthy() && !probing_) return;
    if (forming().batch.empty() && !records_due_) return;       // records alone wait for company
    place_records();
    Gathered& gathered = forming();
    if (gathered.batch.empty()) return;
    if (!segments_.make_room(gathered.batch.bytes(), gathered.batch.index_bytes())) {
        if (!no_segment_since_) no_segment_since_ = loop_.now();
        return;
    }
    no_segment_since_.reset();
    records_due_ = false;
    company_timer_.cancel();

    const Segment& segment = segments_[segments_.active()];
    resolve_extents(segment.epoch, segment.end);
    flight_octets_ = gathered.batch.seal(segment.epoch, segment.end, segment.batch_count + 1, segment.message_total);
    flight_bytes_ = flight_octets_.size();
    staging_.end_batch(flight_bytes_);
    forming_ = 1 - forming_;
    flight_began_ = loop_.now();
    sink_.write(segment.fd.get(), segment.end, flight_octets_);
}

// Now it is known where the batch will lie: tell the fragments' owners, and the messages whose fragments are in here.
void Committer::resolve_extents(uint64_t epoch, uint32_t offset) {
    Gathered& gathered = forming();
    const uint32_t active = segments_.active();
    for (const FragmentEntry& entry : gathered.fragments) {
        if (!entry.writer) continue;
        WriterState::Part& part = entry.writer->parts[entry.part];
        part.segment = active;
        part.extent.epoch = epoch;
        part.extent.offset = offset + gathered.batch.at(entry.frame);
        auto& pinned = entry.writer->pinned;
        if (std::find(pinned.begin(), pinned.end(), active) != pinned.end()) continue;
        pinned.push_back(active);
        segments_.pin(active);
    }
    for (const MessageEntry& entry : gathered.messages) {
        if (!entry.writer || !entry.has_open_extents) continue;
        char* at = gathered.batch.payload(entry.frame).data() + sizeof(MessageHeader);
        for (const WriterState::Part& part : entry.writer->parts) {
            store(at, part.extent);
            at += sizeof(Extent);
        }
        gathered.batch.update_payload_crc(entry.frame);
    }
}

void Committer::on_batch_written(int error) {
    const bool was_healthy = healthy();
    probing_ = false;
    flight_bytes_ = 0;
    if (error) {
        ++failures_;
        probe_.batch_failed(error);
        segments_.fail_active();        // what was acknowledged there stays readable; nothing more is written to it
        records_.taken_failed();
        if (!records_.empty()) records_due_ = true;
        fail_batch(flight(), SpoolError::failed);
    } else {
        failures_ = 0;
        succeed();
    }
    flight().reset();
    if (was_healthy && !healthy()) fail_batch(forming(), SpoolError::failed);
    events_.on_batch_over();
    schedule();
}

void Committer::succeed() {
    Gathered& gathered = flight();
    const uint32_t active = segments_.active();
    Segment& segment = segments_[active];
    staging_.remember(flight_octets_, segment.life, segment.end);
    add_messages();
    if (gathered.records_frame) {
        const auto octets = gathered.batch.payload(*gathered.records_frame);
        segments_.index().add_records({octets.data(), octets.size()});
    }
    const auto count =
        static_cast<uint32_t>(std::count_if(gathered.messages.begin(), gathered.messages.end(),
                                            [](const auto& entry) { return entry.message != no_message; }));
    segments_.advance(flight_octets_.size(), count);
    probe_.batch_committed(count, flight_octets_.size(), loop_.now() - flight_began_);
    if (const size_t records = records_.taken()) probe_.results_recorded(static_cast<uint32_t>(records));
    records_.taken_durable([&](uint32_t subject, uint32_t completes) {
        if (subject != active) {
            const Segment::Subject entry{subject, segments_[subject].epoch};
            auto& subjects = segments_[active].subjects;
            if (std::find(subjects.begin(), subjects.end(), entry) == subjects.end()) subjects.push_back(entry);
        }
        events_.on_record_durable(subject, completes);
    });
    for (MessageEntry& entry : gathered.messages) {        // a call may abandon a later writer of this list
        if (entry.message == no_message) continue;
        if (!entry.writer) {
            events_.on_unwanted(entry.message);
            continue;
        }
        WriterState& writer = *std::exchange(entry.writer, nullptr);
        probe_.message_committed(writer.bytes, loop_.now() - writer.committed_at);
        events_.on_outcome(writer, entry.message);
    }
}

// Table and index first, so that a call-back finds every message of its batch.
void Committer::add_messages() {
    Gathered& gathered = flight();
    const uint32_t active = segments_.active();
    const Segment& segment = segments_[active];
    uint32_t ordinal = segment.message_total;
    for (MessageEntry& entry : gathered.messages) {
        if (gathered.batch.type(entry.frame) != FrameType::message) continue;      // disowned before it was sealed
        const auto octets = gathered.batch.payload(entry.frame);
        const auto payload = decode_message({octets.data(), octets.size()});
        CHECK_INVARIANT(payload.has_value());
        const MessageHeader& header = payload->header;
        entry.message = messages_.add();
        MessageRow& row = messages_[entry.message];
        row.queue_id = header.queue_id;
        row.received_ns = header.received_ns;
        row.segment = active;
        row.offset = segment.end + gathered.batch.at(entry.frame);
        row.payload_bytes = static_cast<uint32_t>(octets.size());
        row.ordinal = ordinal++;
        row.recipient_count = row.pending_count = header.recipient_count;
        segments_.link(messages_, entry.message);
        segments_.index().add_message({.offset = row.offset,
                                       .payload_bytes = row.payload_bytes,
                                       .queue_id = header.queue_id,
                                       .received_ns = header.received_ns,
                                       .message_bytes = header.message_bytes,
                                       .ordinal = row.ordinal,
                                       .recipient_count = header.recipient_count,
                                       .batch = segment.batch_count + 1},
                                      payload->extents);
        if (!entry.writer) continue;
        for (const uint32_t pinned : entry.writer->pinned) {       // the message takes its writer's pins over
            if (pinned == active) segments_.unpin(pinned);          // it lies there itself
            else messages_.extent_segments(entry.message).push_back(pinned), row.has_extents = true;
        }
        entry.writer->pinned.clear();
    }
}

// ---- Trouble ------------------------------------------------------------------------------------------------------------

void Committer::fail_batch(Gathered& gathered, SpoolError why) {
    for (const FragmentEntry& entry : gathered.fragments)
        if (entry.writer) entry.writer->fail(why);
    for (MessageEntry& entry : gathered.messages) {
        if (!entry.writer) continue;
        WriterState& writer = *std::exchange(entry.writer, nullptr);
        if (&gathered == &forming()) gathered.batch.disown(entry.frame);
        writer.fail(why);
        events_.on_outcome(writer, fail(writer.error));
    }
    // Messages of the batch that formed meanwhile whose fragments were lost here.
    for (MessageEntry& entry : forming().messages) {
        if (!entry.writer || !entry.writer->failed) continue;
        WriterState& writer = *std::exchange(entry.writer, nullptr);
        forming().batch.disown(entry.frame);
        events_.on_outcome(writer, fail(writer.error));
    }
}

void Committer::on_tick() {
    if (no_segment_since_ && loop_.now() - *no_segment_since_ >= segment_wait_max) give_up_waiting();
    if (!healthy() && !sink_.busy()) {      // one small batch tries whether the disk is back
        probing_ = true;
        begin();
        if (forming().batch.empty()) {
            const auto nothing = forming().batch.open_frame(FrameType::fragment, 0, 0);
            forming().batch.close_frame(nothing);
        }
    }
    schedule();
}

// No segment for too long: what waits is refused, the records stay.
void Committer::give_up_waiting() {
    no_segment_since_.reset();
    fail_batch(forming(), SpoolError::full);
    records_.taken_failed();
    forming().reset();
    staging_.end_batch(0);
    while (WriterState* writer = waiting_.pop_front()) {
        writer->fail(SpoolError::full);
        refuse(*writer);
    }
    records_due_ = !records_.empty();
}

}  // namespace postern::storage
