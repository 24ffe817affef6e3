#include "storage/recovery.hpp"

#include <algorithm>
#include <tuple>

#include "ring/base/check.hpp"

namespace postern::storage {
namespace {

// A row's optional cells match anything when empty.  Rows do not overlap and leave no gap: tests try all combinations.
struct SegmentRow {
    HeaderVerdict header;
    std::optional<bool> index_good;
    SegmentPlan plan;
};
constexpr SegmentRow segment_rows[] = {
    {HeaderVerdict::good, true, SegmentPlan::use_index},
    {HeaderVerdict::good, false, SegmentPlan::scan},
    {HeaderVerdict::damaged, true, SegmentPlan::use_index},         // the trailer knows the epoch
    {HeaderVerdict::damaged, false, SegmentPlan::ignore},           // no epoch: no frame can be told from a stale one
    {HeaderVerdict::not_a_segment, true, SegmentPlan::use_index},   // even the magic is gone
    {HeaderVerdict::not_a_segment, false, SegmentPlan::ignore},
    {HeaderVerdict::other_format, std::nullopt, SegmentPlan::ignore},
};

struct VerdictRow {
    std::optional<bool> marked_complete, any_pending, any_failed, whole, last_batch;
    MessageVerdict verdict;
};
constexpr std::nullopt_t any = std::nullopt;
constexpr VerdictRow message_rows[] = {
    // marked  pending  failed  whole  last batch
    {true, any, any, any, any, MessageVerdict::complete},
    {false, false, false, any, any, MessageVerdict::complete},      // its octets are not needed any more
    {false, false, true, any, any, MessageVerdict::held},
    {false, true, any, true, any, MessageVerdict::pending},
    {false, true, any, false, true, MessageVerdict::dropped},
    {false, true, any, false, false, MessageVerdict::damaged},
};

bool matches(std::optional<bool> cell, bool fact) { return !cell || *cell == fact; }
bool matches(const SegmentRow& row, const SegmentFacts& facts) {
    return row.header == facts.header && matches(row.index_good, facts.index_good);
}
bool matches(const VerdictRow& row, const MessageFacts& facts) {
    return matches(row.marked_complete, facts.marked_complete) && matches(row.any_pending, facts.any_pending) &&
           matches(row.any_failed, facts.any_failed) && matches(row.whole, facts.whole) &&
           matches(row.last_batch, facts.last_batch);
}

template <class Rows, class Facts>
auto first_row(const Rows& rows, const Facts& facts) {
    const auto row = std::find_if(std::begin(rows), std::end(rows),
                                  [&](const auto& candidate) { return matches(candidate, facts); });
    CHECK_INVARIANT(row != std::end(rows));     // the table is total
    return *row;
}
template <class Rows, class Facts>
size_t count_rows(const Rows& rows, const Facts& facts) {
    return static_cast<size_t>(
        std::count_if(std::begin(rows), std::end(rows), [&](const auto& row) { return matches(row, facts); }));
}

}  // namespace

SegmentPlan plan_for(const SegmentFacts& facts) { return first_row(segment_rows, facts).plan; }
size_t rows_for(const SegmentFacts& facts) { return count_rows(segment_rows, facts); }
MessageVerdict verdict_on(const MessageFacts& facts) { return first_row(message_rows, facts).verdict; }
size_t rows_for(const MessageFacts& facts) { return count_rows(message_rows, facts); }

void merge(RecipientSlot& slot, const RecordHeader& record) {
    // What wins is a total order over records, so that merging commutes: final before deferred, delivered before failed
    // (it has arrived), then the higher attempt, then the later time.
    const auto rank = [](RecipientSlot::State state) {
        return state == RecipientSlot::delivered ? 2 : state == RecipientSlot::failed ? 1 : 0;
    };
    RecipientSlot seen;
    switch (static_cast<RecordOutcome>(record.outcome)) {
        case RecordOutcome::delivered: seen.state = RecipientSlot::delivered; break;
        case RecordOutcome::failed: seen.state = RecipientSlot::failed; break;
        case RecordOutcome::deferred: seen.state = RecipientSlot::pending; break;
    }
    seen.attempt = record.attempt;
    seen.reply_code = record.reply_code;
    const int64_t until = record.until_ns / 1'000'000'000;
    seen.until_s = static_cast<uint32_t>(std::clamp<int64_t>(until, 0, UINT32_MAX));
    const auto key = [&](const RecipientSlot& s) {
        return std::tuple(rank(s.state), s.attempt, s.until_s, s.reply_code);
    };
    if (key(seen) > key(slot)) slot = seen;
}

Recovery::Recovery(bool forced_scan) : forced_scan_(forced_scan), window_(4_MiB) {}

bool Recovery::add(SegmentSource& source, std::string name) {
    FoundSegment& segment = segments_.emplace_back();
    segment.name = std::move(name);
    segment.bytes = source.bytes();
    segment.header = HeaderVerdict::not_a_segment;
    if (source.bytes() < segment_bytes_min || source.bytes() > segment_bytes_max || source.bytes() % block_bytes)
        return false;

    const auto block = window_.span().first(block_bytes);
    const std::string_view octets(block.data(), block.size());
    SegmentHeader header;
    if (source.read(0, block)) segment.header = decode_segment_header(octets, header);
    if (segment.header == HeaderVerdict::good && header.segment_bytes != source.bytes())
        segment.header = HeaderVerdict::damaged;
    const bool header_good = segment.header == HeaderVerdict::good;

    SegmentTrailer trailer;
    const auto epoch = header_good ? std::optional(header.epoch) : std::nullopt;
    const bool index_good = source.read(source.bytes() - block_bytes, block) &&
                            decode_trailer(octets, epoch, source.bytes(), trailer) && read_index(source, trailer);
    segment.plan = plan_for({segment.header, index_good});
    if (segment.plan == SegmentPlan::ignore) return false;

    segment.epoch = header_good ? header.epoch : trailer.epoch;
    segment.sequence = header_good ? header.sequence : trailer.sequence;
    segment.shard = header_good ? header.shard : trailer.shard;
    segment.boot = header_good ? header.boot : trailer.boot;
    segment.messages_first = static_cast<uint32_t>(messages_.size());
    slots_max_ += segment.bytes / 8;
    const auto index = static_cast<uint32_t>(segments_.size() - 1);
    if (!by_epoch_.try_emplace(segment.epoch, index).second) {      // a copy of a segment: once is enough
        segment.plan = SegmentPlan::ignore;
        return false;
    }
    if (segment.plan == SegmentPlan::use_index) use_index(trailer);
    if (segment.plan == SegmentPlan::scan || (forced_scan_ && header_good)) scan(source);
    segment.message_count = static_cast<uint32_t>(messages_.size()) - segment.messages_first;
    record_ranges_.emplace_back(index, records_.size());
    return true;
}

bool Recovery::read_index(SegmentSource& source, const SegmentTrailer& trailer) {
    const uint64_t bytes = round_up(trailer.index_bytes, block_bytes);
    if (index_.bytes() < bytes) index_ = AlignedBuffer(round_up(bytes, 1_MiB));
    if (bytes && !source.read(trailer.index_offset, index_.span().first(bytes))) return false;
    return seeded_crc(trailer.epoch, trailer.index_offset, index_.span().data(), trailer.index_bytes) ==
           trailer.index_crc;
}

void Recovery::use_index(const SegmentTrailer& trailer) {
    FoundSegment& segment = segments_.back();
    segment.end_offset = trailer.end_offset;
    segment.last_batch = trailer.batch_count;
    if (forced_scan_ && segment.header == HeaderVerdict::good) return;      // the scan will find all of it
    std::string_view entries(index_.span().data(), trailer.entries_bytes);
    while (const auto message = take_entry(entries)) add_message(message->entry, message->extents);
    add_records({index_.span().data() + trailer.entries_bytes, trailer.index_bytes - trailer.entries_bytes});
}

void Recovery::scan(SegmentSource& source) {
    SegmentScanner scanner(source, segments_.back().epoch, window_.span());
    ScannedFrame frame;
    while (scanner.next(frame)) {
        FoundSegment& segment = segments_.back();
        ++segment.frames;
        switch (static_cast<FrameType>(frame.header.type)) {
            case FrameType::fragment:
                fragments_.push_back({segment.epoch, frame.offset, frame.header.payload_bytes});
                break;
            case FrameType::message:
                if (const auto message = decode_message(frame.payload)) {
                    const MessageHeader& header = message->header;
                    add_message({.offset = frame.offset, .payload_bytes = frame.header.payload_bytes,
                                 .queue_id = header.queue_id, .received_ns = header.received_ns,
                                 .message_bytes = header.message_bytes, .ordinal = frame.header.ordinal,
                                 .recipient_count = header.recipient_count, .batch = frame.header.batch,
                                 .extent_count = header.extent_count},
                                message->extents);
                } else {
                    segment.bad_spots.push_back({frame.offset, true, "message frame does not add up"});
                }
                break;
            case FrameType::records: add_records(frame.payload); break;
            case FrameType::hold:
            case FrameType::moved: break;       // reserved
        }
    }
    FoundSegment& segment = segments_.back();
    segment.last_batch = std::max(segment.last_batch, scanner.last_batch());
    segment.end_offset = std::max(segment.end_offset, scanner.end());
    for (const BadSpot& spot : scanner.bad_spots()) {
        // A sealed segment has no tail that could be torn.
        const bool damage = spot.damage || segment.plan == SegmentPlan::use_index;
        if (damage) segment.bad_spots.push_back({spot.offset, true, spot.what});
        else segment.torn_tail = true;
    }
    if (scanner.unreadable_bytes()) segment.bad_spots.push_back({0, true, "blocks could not be read"});
    segment.indexable = segment.plan == SegmentPlan::scan && segment.bad_spots.empty();
}

void Recovery::add_message(const IndexEntry& entry, std::string_view extents) {
    FoundSegment& segment = segments_.back();
    const bool sane = entry.recipient_count <= recipients_max && entry.ordinal >= segment.message_total &&
                      entry.ordinal < segment.bytes / frame_header_bytes && entry.offset >= batches_begin &&
                      entry.offset + frame_bytes(entry.payload_bytes) <= segment.bytes;
    if (!sane) {
        segment.bad_spots.push_back({entry.offset, true, "message out of bounds"});
        return;
    }
    segment.message_total = entry.ordinal + 1;
    FoundMessage& message = messages_.emplace_back();
    message.queue_id = entry.queue_id;
    message.received_ns = entry.received_ns;
    message.message_bytes = entry.message_bytes;
    message.batch = entry.batch;
    message.segment = static_cast<uint32_t>(segments_.size() - 1);
    message.offset = entry.offset;
    message.payload_bytes = entry.payload_bytes;
    message.ordinal = entry.ordinal;
    message.recipient_count = entry.recipient_count;
    message.extents_first = static_cast<uint32_t>(extents_.size());
    message.extent_count = static_cast<uint32_t>(extents.size() / sizeof(Extent));
    for (uint32_t i = 0; i < message.extent_count; ++i)
        extents_.push_back(load<Extent>(extents.data() + i * sizeof(Extent)));
}

void Recovery::add_records(std::string_view records) {
    while (const auto record = take_record(records)) {
        append_record(record->header, record->detail, records_);
        ++segments_.back().record_count;
    }
    if (!records.empty()) segments_.back().bad_spots.push_back({0, true, "records do not add up"});
}

void Recovery::resolve() {
    size_t begin = 0;
    for (const auto& [segment, end] : record_ranges_) {
        std::string_view records(records_.data() + begin, end - begin);
        while (const auto record = take_record(records)) apply(segment, *record);
        begin = end;
    }
    std::sort(fragments_.begin(), fragments_.end(), [](const Extent& a, const Extent& b) {
        return std::tie(a.epoch, a.offset) < std::tie(b.epoch, b.offset);
    });
    for (FoundMessage& message : messages_) {
        const FoundSegment& segment = segments_[message.segment];
        MessageFacts facts;
        facts.marked_complete = message.marked_complete;
        facts.whole = whole(message);
        facts.last_batch = segment.plan == SegmentPlan::scan && message.batch == segment.last_batch;
        if (message.slots_first != FoundMessage::none) {
            const auto slots = slots_of(message);
            const auto has = [&](RecipientSlot::State state) {
                return std::any_of(slots.begin(), slots.end(),
                                   [&](const RecipientSlot& slot) { return slot.state == state; });
            };
            facts.any_pending = has(RecipientSlot::pending);
            facts.any_failed = has(RecipientSlot::failed);
        }
        message.verdict = verdict_on(facts);
    }
}

void Recovery::apply(uint32_t segment, const Record& record) {
    const auto subject = segment_of_epoch(record.header.epoch);
    if (!subject) return;                       // the message's segment is gone: so is the message
    auto& subjects = segments_[segment].subjects;
    if (std::find(subjects.begin(), subjects.end(), *subject) == subjects.end()) subjects.push_back(*subject);
    const FoundSegment& of = segments_[*subject];
    switch (static_cast<RecordKind>(record.header.kind)) {
        case RecordKind::complete_map:
            for (uint32_t i = 0; i < of.message_count; ++i) {
                FoundMessage& message = messages_[of.messages_first + i];
                if (complete_in(record, message.ordinal)) message.marked_complete = true;
            }
            break;
        case RecordKind::withdrawn:
            if (FoundMessage* message = find(*subject, record.header.ordinal)) message->marked_complete = true;
            break;
        case RecordKind::recipient: {
            FoundMessage* message = find(*subject, record.header.ordinal);
            if (!message || record.header.recipient >= message->recipient_count) break;
            if (message->slots_first == FoundMessage::none) {
                if (slots_.size() + message->recipient_count > slots_max_) break;      // delivered again at worst (P2)
                message->slots_first = static_cast<uint32_t>(slots_.size());
                slots_.resize(slots_.size() + message->recipient_count);
            }
            merge(slots_[message->slots_first + record.header.recipient], record.header);
            break;
        }
    }
}

FoundMessage* Recovery::find(uint32_t segment, uint32_t ordinal) {
    const FoundSegment& of = segments_[segment];
    const auto first = messages_.begin() + of.messages_first, last = first + of.message_count;
    const auto at =
        std::lower_bound(first, last, ordinal, [](const FoundMessage& m, uint32_t o) { return m.ordinal < o; });
    return at != last && at->ordinal == ordinal ? &*at : nullptr;
}

// Extents of sealed segments are taken on trust: they were durable before the message was written.
bool Recovery::whole(const FoundMessage& message) const {
    for (const Extent& extent : extents_of(message)) {
        const auto segment = segment_of_epoch(extent.epoch);
        if (!segment) return false;
        if (segments_[*segment].frames == 0 && segments_[*segment].plan == SegmentPlan::use_index) continue;
        const auto less = [](const Extent& a, const Extent& b) {
            return std::tie(a.epoch, a.offset) < std::tie(b.epoch, b.offset);
        };
        const auto at = std::lower_bound(fragments_.begin(), fragments_.end(), extent, less);
        if (at == fragments_.end() || !(*at == extent)) return false;
    }
    return true;
}

std::span<const Extent> Recovery::extents_of(const FoundMessage& message) const {
    return {extents_.data() + message.extents_first, message.extent_count};
}
std::span<RecipientSlot> Recovery::slots_of(const FoundMessage& message) {
    if (message.slots_first == FoundMessage::none) return {};
    return {slots_.data() + message.slots_first, message.recipient_count};
}
std::optional<uint32_t> Recovery::segment_of_epoch(uint64_t epoch) const {
    const auto at = by_epoch_.find(epoch);
    return at == by_epoch_.end() ? std::nullopt : std::optional(at->second);
}

}  // namespace postern::storage
