// The durable message spool of one shard: the log is the queue (storage/README.md: format, invariants, recovery).
//
// A message is accepted when on_committed() reports success, never earlier: at that moment its octets and its envelope are
// on stable storage (P1).  Unfinished messages cost bounded memory (P4); large ones spill to the log as fragments.
// What is stored is the unstuffed message, byte for byte, and an envelope that the spool does not look into.
//
// Threads: the owning shard, but for open_directory() and verify.  Blocking: only open(), which recovers before service
// starts; everything else completes through the shard's loop.  Creating, zeroing and renaming files is done by
// housekeeping workers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ring/base/result.hpp"
#include "ring/base/units.hpp"
#include "ring/loop.hpp"
#include "ring/threads.hpp"
#include "storage/probe.hpp"
#include "storage/queue_id.hpp"

namespace postern::storage {

enum class SinkChoice : uint8_t { automatic, direct, buffered, none };

struct SpoolConfig {
    std::string path;
    unsigned shard = 0;
    unsigned shard_count = 1;
    uint64_t segment_bytes = 64_MiB;            // 1 MiB to 1 GiB, whole blocks
    unsigned spare_segments = 2;                // kept ready ahead of need
    uint64_t reserve_bytes = 64_MiB;            // of the file system, left free for others
    uint64_t chunk_bytes_max = 24_MiB;          // memory of unfinished messages; beyond it they spill early, then congest
    SinkChoice sink = SinkChoice::automatic;    // automatic: probed, direct if the file system can
    unsigned housekeeping_loop = 0;             // what housekeeping.attach(loop) gave
};

// The spool folder of the process: made if missing, locked against a second process, and its boot number advanced and
// made durable.  Shared by all shards, outlives them.
struct SpoolDirectory {
    std::string path;
    UniqueFd lock;
    uint32_t boot = 0;
};
enum class SpoolGate : uint8_t { locked, no_space, not_writable, other_format, other };
struct SpoolFailure {
    SpoolGate gate = SpoolGate::other;
    Error error;                                // cause and remedy in words
};
Result<SpoolDirectory, SpoolFailure> open_directory(const std::string& path);

// Why storing did not work; the SMTP edge maps it to 4xx once (452 4.3.1 for full, 451 4.3.0 otherwise).
enum class SpoolError : uint8_t { full, failed, too_fragmented };

// A message of this spool in memory: an index into its table, valid until the message completes.
using MessageIndex = uint32_t;

// Facts stored beside the envelope (flags are the gateway's; the spool keeps them).
struct MessageAttributes {
    Wall received;
    uint64_t bytes = 0;                         // of the stored message, our trace fields included
    uint32_t recipient_count = 0;
    uint16_t flags = 0;
};

enum class RecipientOutcome : uint8_t { delivered, deferred, failed };
enum class RecipientState : uint8_t { pending, delivered, failed };
struct RecipientResult {
    uint32_t recipient = 0;                     // index in the envelope
    RecipientOutcome outcome = RecipientOutcome::delivered;
    uint16_t attempt = 0;                       // how many attempts have been made, this one included
    Wall until{};                               // deferred: not before
    uint16_t reply_code = 0;                    // of the next hop; 0: none
    std::string_view diagnostic{};              // what it said; the first 200 octets are kept
};

struct RecoveredMessage {
    MessageIndex index = 0;
    uint16_t attempts = 0;                      // the most of its pending recipients
    Wall not_before;                            // the earliest of them; 0: now
};

class CommitWaiter {
public:
    // Called once, from the loop, never from within commit().  The message is pending delivery from now on.
    virtual void on_committed(Result<MessageIndex, SpoolError> outcome) = 0;

protected:
    ~CommitWaiter() = default;
};

class Spool;

// One message being received.  Reused for message after message; embedded in the session that owns it.
class MessageWriter {
public:
    explicit MessageWriter(Spool& spool);
    ~MessageWriter();                           // abandons
    MessageWriter(const MessageWriter&) = delete;

    Result<void, SpoolError> begin(QueueId id); // full: refuse before the data comes
    bool open() const;
    // Takes the slice by reference: it must stay valid until settle(), commit() or abandon().  This is what lets a message
    // that arrived whole be copied once, straight into the batch.  After an error only abandon() is useful.
    Result<void, SpoolError> append(std::string_view slice);
    void settle();                              // copies what is still held by reference; before the slices go away
    uint64_t bytes() const;
    // The message joins the shard's next batch.  Slices held by reference and the envelope are copied before it returns.
    // attributes.bytes is filled in by the spool.
    void commit(std::string_view envelope, const MessageAttributes& attributes, CommitWaiter& waiter);
    void abandon();                             // also of a commit in flight: the waiter is not called any more
    bool committing() const;

private:
    friend class Spool;
    struct State;
    Spool& spool_;
    State* state_ = nullptr;                    // pooled by the spool; null while idle, so that an idle session is small
};

// Reads one stored message for delivery: from batches still in memory if it can, else through the ring.
class MessageReaderHandler {
public:
    virtual void on_readable() = 0;             // what was pending is decided: call open() or next() again

protected:
    ~MessageReaderHandler() = default;
};
class MessageReader {
public:
    enum class Status : uint8_t { ready, pending, end, failed };    // failed: damage or I/O error, counted and logged
    MessageReader(Spool& spool, MessageReaderHandler& handler);
    ~MessageReader();
    MessageReader(const MessageReader&) = delete;

    Status open(MessageIndex message);          // ready: envelope() and attributes() are there
    std::string_view envelope() const;          // valid until close()
    const MessageAttributes& attributes() const;
    // open() and next() stay pending until on_readable(), however often they are called.
    // The next octets of the message, at most 256 KiB; the view is valid until the next call or the end of this turn,
    // whichever is first.  Checked against the stored CRC before they are given out.
    Status next(std::string_view& octets);
    void close();

private:
    struct State;
    std::unique_ptr<State> state_;
};

// A blocking copy of the same for workers (Maildir): taken on the shard, run elsewhere.  The message must stay pending
// until the worker has finished with it: the spool pins the segments of pending messages.
class StoredMessage {
public:
    StoredMessage();
    StoredMessage(StoredMessage&&) noexcept;
    StoredMessage& operator=(StoredMessage&&) noexcept;
    ~StoredMessage();
    // Worker: gives the whole message in order, checked, in pieces of at most 256 KiB.  `consume` returning false stops.
    Result<void> read(const std::function<bool(std::string_view)>& consume) const;

private:
    friend class Spool;
    struct State;
    std::unique_ptr<State> state_;
};

class Spool {
public:
    // Recovers (blocking), adopts orphan shard folders, makes sure that a segment is ready to be written.
    // `loop` must have been made with ring staging of at least 4 MiB: commits are staged there, and recently
    // committed batches are kept there for reading.
    static Result<std::unique_ptr<Spool>, SpoolFailure> open(ring::Loop& loop, ring::Workers& housekeeping,
                                                             const SpoolDirectory& directory, const SpoolConfig& config,
                                                             SpoolProbe& probe);
    ~Spool();

    // What recovery found, oldest first; to be called once, before service.
    void for_each_recovered(const std::function<void(const RecoveredMessage&)>& visit);
    struct RecoveryReport {
        uint64_t segments = 0, segments_scanned = 0, messages = 0, held = 0, torn_tails = 0, damaged_frames = 0;
        uint64_t messages_lost_to_damage = 0;   // frames known from an index or extents, whose octets are bad
        Duration took;
        std::string text() const;               // one line for the log
    };
    const RecoveryReport& recovery() const;

    QueueId next_id();
    // Room for a message of so many octets (0: unknown)?  Honest and early: 452 at MAIL and before the 354.
    bool has_room(uint64_t bytes) const;
    bool healthy() const;                       // false: commits fail; answer 451/421 and be not ready
    // Memory of unfinished messages is at its limit: sessions in data stop receiving until it is not (on_relieved).
    bool congested() const;
    class Relief : public ListNode<Relief> {
    public:
        virtual void on_relieved() = 0;

    protected:
        ~Relief() = default;
    };
    void wait_for_relief(Relief& relief);

    // Delivery.
    QueueId id_of(MessageIndex message) const;
    Wall received_of(MessageIndex message) const;
    RecipientState state_of(MessageIndex message, uint32_t recipient) const;
    // Recorded durably with one of the next batches; no call-back.  Delivered and failed are final; when no recipient is
    // pending the message is complete (all delivered: its index is invalid from now on) or held (some failed).
    // A crash before the record is durable delivers again (P2).  Returns true when no recipient is pending any more.
    bool record(MessageIndex message, std::span<const RecipientResult> results);
    StoredMessage stored(MessageIndex message);

    SpoolStatus status() const;
    // Starts writing what is gathered and tells whether nothing is left to write: at stop, called until true.
    bool flushed() const;

    struct Impl;
    Impl& impl() { return *impl_; }

private:
    explicit Spool(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace postern::storage
