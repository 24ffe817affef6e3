// One route's share of this shard's mail: what waits, what is deferred until when.
//
// Memory: 12 octets a message, whatever its recipients (P4).  All recipients of a message that go the same way are one
// item.  Threads: the owning shard.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/delivery/context.hpp"
#include "proto/envelope.hpp"

namespace postern::gateway {

constexpr Duration damaged_retry = hours(1);     // of a stored message that could not be read

struct Item {
    storage::MessageIndex message = 0;
    uint16_t attempts = 0;              // made so far
    uint32_t due = 0;                   // wall seconds; 0: now
};
static_assert(sizeof(Item) == 12, "G6");

// What one attempt found out about the recipients of one message, gathered and then settled as a whole.
class AttemptResults {
public:
    void clear();
    void add(uint32_t recipient, storage::RecipientOutcome outcome, uint16_t code, std::string_view text);
    void drop_unanswered();             // entries without a reply code
    bool empty() const { return entries_.empty(); }

private:
    friend class Route;
    struct Entry {
        uint32_t recipient;
        storage::RecipientOutcome outcome;
        uint16_t code;
        uint32_t text_begin, text_bytes;
    };
    std::vector<Entry> entries_;
    std::string texts_;
    std::vector<storage::RecipientResult> results_;
};

class Route : protected ring::TimerHandler {
public:
    Route(DeliveryContext& context, size_t index);
    virtual ~Route() = default;
    Route(const Route&) = delete;

    // A message with pending recipients here.  The envelope is valid during the call.
    virtual void take(const Item& item, const proto::Envelope& envelope);
    virtual void stop() { stopping_ = true; }           // begins nothing new
    virtual void abort() {}                             // closes all connections at once
    virtual bool busy() const = 0;                      // an attempt is under way
    virtual bool closed() const { return true; }        // no connection is open

    size_t index() const { return index_; }
    const config::Route& settings() const { return context_.config.routes[index_]; }
    DeliveryContext& context() { return context_; }
    void publish();                                     // gauges

    // The recipients of the envelope that go this way and are pending.
    void pending_recipients(storage::MessageIndex message, const proto::Envelope& envelope,
                            std::vector<uint32_t>& recipients) const;
    // Records what an attempt found: one log line, one count and one stored result a recipient.  Deferred ones come back
    // later, or fail when their time is up.  The item is used up.
    void settle(const Item& item, const proto::Envelope& envelope, AttemptResults& results);
    // The stored message cannot be read (damage, I/O error): tried again in an hour, said loudly.
    void unreadable(const Item& item);
    void say_unreadable(const Item& item);
    void count_attempt(const Item& item);
    // Every waiting message whose time is up fails, now that an attempt to reach the next hop has failed.
    void expire_waiting(std::string_view reason);

protected:
    // Starts attempts while there are items and means.
    virtual void kick() = 0;
    virtual void on_due() {}                            // the wake-up asked for with wake_in()
    std::optional<Item> next();
    bool waiting() const { return !fifo_.empty(); }
    size_t waiting_count() const { return fifo_.size(); }
    void put_back(const Item& item) { fifo_.push_front(item); }
    void wake_in(Duration wait);
    metrics::RouteMetrics& counters() { return context_.metrics.route(index_); }

    DeliveryContext& context_;
    bool stopping_ = false;

private:
    friend class Sorter;
    void on_timer(ring::Timer& timer) final;
    void defer(const Item& item);
    void arm();

    size_t index_;
    std::deque<Item> fifo_;
    std::vector<Item> deferred_;                        // a heap, the earliest first
    std::optional<Monotonic> wake_at_;
    ring::Timer timer_;
    class Sorter* sorter_ = nullptr;
};

// The pseudo next hop "discard:": delivered at once, for measurements.
class DiscardRoute final : public Route {
public:
    using Route::Route;
    void take(const Item& item, const proto::Envelope& envelope) override;
    bool busy() const override { return false; }

private:
    void kick() override {}
    std::vector<uint32_t> recipients_;
    AttemptResults results_;
};

}  // namespace postern::gateway
