// Recovery: from segment files to the messages that still wait, decided by three tables (storage/README.md, "Recovery").
//
// Idempotent, and independent of the order in which records are seen: delivered and failed are final and win over
// deferred; among deferred the highest attempt wins.  Pure over SegmentSource.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "storage/segment_reader.hpp"

namespace postern::storage {

// ---- The tables -------------------------------------------------------------------------------------------------

// 1. A file, by its two ends.
enum class SegmentPlan : uint8_t {
    ignore,         // not a segment, or of another format: left alone, noted
    use_index,      // the trailer's index tells all; octets are not read
    scan,           // read front to back
};
struct SegmentFacts {
    HeaderVerdict header = HeaderVerdict::good;
    bool index_good = false;        // trailer and index match each other, and the header if that is good
};
SegmentPlan plan_for(const SegmentFacts& facts);
size_t rows_for(const SegmentFacts& facts);     // how many rows match: 1, always

// 2. A message, by what is known of it.
enum class MessageVerdict : uint8_t {
    pending,        // to be delivered
    complete,       // all delivered, or withdrawn
    held,           // nothing pending, some failed
    dropped,        // of a batch that was never acknowledged, and not whole
    damaged,        // acknowledged and not whole: held, never delivered in part
};
struct MessageFacts {
    bool marked_complete = false;   // a complete map or a withdrawal names it
    bool any_pending = true;        // a recipient without a final outcome
    bool any_failed = false;
    bool whole = true;              // every extent is there
    bool last_batch = false;        // of a segment that was not sealed
};
MessageVerdict verdict_on(const MessageFacts& facts);
size_t rows_for(const MessageFacts& facts);

// ---- Recipients ---------------------------------------------------------------------------------------------------

struct RecipientSlot {
    enum State : uint8_t { pending, delivered, failed };
    State state = pending;
    uint16_t attempt = 0;
    uint16_t reply_code = 0;
    uint32_t until_s = 0;           // seconds since 1970; 0: now
};
// Takes one record in; calling it in any order, any number of times, gives the same slot.
void merge(RecipientSlot& slot, const RecordHeader& record);

constexpr uint32_t recipients_max = 65'536;     // a message; a bound for what a record may make us allocate

// ---- The work -------------------------------------------------------------------------------------------------------

struct FoundMessage {
    uint64_t queue_id = 0;
    int64_t received_ns = 0;
    uint64_t message_bytes = 0;
    uint64_t batch = 0;
    uint32_t segment = 0;           // index into segments()
    uint32_t offset = 0;
    uint32_t payload_bytes = 0;
    uint32_t ordinal = 0;
    uint32_t recipient_count = 0;
    uint32_t extents_first = 0;     // in extents()
    uint32_t extent_count = 0;
    uint32_t slots_first = none;    // in slots(), recipient_count of them; none: nothing recorded yet
    MessageVerdict verdict = MessageVerdict::pending;
    bool marked_complete = false;
    static constexpr uint32_t none = UINT32_MAX;
};

struct FoundSegment {
    std::string name;
    SegmentPlan plan = SegmentPlan::ignore;
    HeaderVerdict header = HeaderVerdict::good;
    uint64_t epoch = 0;
    uint64_t sequence = 0;
    uint64_t bytes = 0;
    uint32_t shard = 0;
    uint32_t boot = 0;
    uint32_t messages_first = 0, message_count = 0;     // in messages(), ascending ordinals
    uint32_t frames = 0, record_count = 0;
    uint32_t end_offset = 0;
    uint32_t message_total = 0;                         // highest ordinal + 1
    uint64_t last_batch = 0;
    bool torn_tail = false;
    bool indexable = false;         // scanned, and nothing was wrong: an index may be written for it
    std::vector<BadSpot> bad_spots;
    std::vector<uint32_t> subjects; // segments whose messages this one's records are about
};

class Recovery {
public:
    // Buffers of a few MiB, reused from file to file.  `forced_scan`: read every octet even where an index would do.
    explicit Recovery(bool forced_scan = false);

    // Reads one file; false when it is not a segment of ours (its entry in segments() says why).
    bool add(SegmentSource& source, std::string name);
    // After the last add(): applies the records, judges every message.
    void resolve();

    std::vector<FoundSegment>& segments() { return segments_; }
    std::vector<FoundMessage>& messages() { return messages_; }
    std::span<const Extent> extents_of(const FoundMessage& message) const;
    std::span<RecipientSlot> slots_of(const FoundMessage& message);
    std::optional<uint32_t> segment_of_epoch(uint64_t epoch) const;

private:
    bool read_index(SegmentSource& source, const SegmentTrailer& trailer);
    void use_index(const SegmentTrailer& trailer);
    void scan(SegmentSource& source);
    void add_message(const IndexEntry& entry, std::string_view extents);
    void add_records(std::string_view records);
    void apply(uint32_t segment, const Record& record);
    FoundMessage* find(uint32_t segment, uint32_t ordinal);
    bool whole(const FoundMessage& message) const;

    bool forced_scan_;
    uint64_t slots_max_ = recipients_max;       // an envelope spends more than 8 octets on a recipient
    AlignedBuffer window_;
    AlignedBuffer index_;
    std::vector<FoundSegment> segments_;
    std::vector<FoundMessage> messages_;
    std::vector<Extent> extents_;
    std::vector<RecipientSlot> slots_;
    std::vector<char> records_;
    std::vector<std::pair<uint32_t, size_t>> record_ranges_;        // segment, end in records_
    std::vector<Extent> fragments_;                                 // of scanned segments, in the order found
    std::unordered_map<uint64_t, uint32_t> by_epoch_;
};

}  // namespace postern::storage
