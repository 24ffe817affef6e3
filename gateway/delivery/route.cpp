#include "gateway/delivery/route.hpp"

#include <algorithm>

#include "gateway/delivery/sorter.hpp"

namespace postern::gateway {

using storage::RecipientOutcome;

namespace {

// Never early: a wait of less than a second is not cut to nothing.
uint32_t due_second(Wall until) { return static_cast<uint32_t>((until + nanoseconds(999'999'999)).seconds()); }

bool later(const Item& a, const Item& b) { return a.due > b.due; }

RetrySchedule schedule_of(const config::Config& config) {
    return {config.delivery.retry_first, config.delivery.retry_max, config.delivery.expire};
}

}  // namespace

void AttemptResults::clear() {
    entries_.clear();
    texts_.clear();
    results_.clear();
}

void AttemptResults::add(uint32_t recipient, RecipientOutcome outcome, uint16_t code, std::string_view text) {
    entries_.push_back({recipient, outcome, code, static_cast<uint32_t>(texts_.size()), static_cast<uint32_t>(text.size())});
    texts_ += text;
}

void AttemptResults::drop_unanswered() {
    std::erase_if(entries_, [](const Entry& entry) { return entry.code == 0; });
}

Route::Route(DeliveryContext& context, size_t index) : context_(context), index_(index), timer_(*this) {}

void Route::take(const Item& item, const proto::Envelope&) {
    if (item.due > context_.loop.wall().seconds()) {
        defer(item);
        return;
    }
    fifo_.push_back(item);
    kick();
}

std::optional<Item> Route::next() {
    if (fifo_.empty()) return std::nullopt;
    Item item = fifo_.front();
    fifo_.pop_front();
    return item;
}

void Route::publish() {
    counters().queued.set(fifo_.size());
    counters().deferred.set(deferred_.size());
}

void Route::pending_recipients(storage::MessageIndex message, const proto::Envelope& envelope,
                               std::vector<uint32_t>& recipients) const {
    recipients.clear();
    for (uint32_t i = 0; i < envelope.recipient_count(); ++i)
        if (context_.spool.state_of(message, i) == storage::RecipientState::pending &&
            context_.policy.route_of(envelope.recipient(i)) == index_)
            recipients.push_back(i);
}

void Route::settle(const Item& item, const proto::Envelope& envelope, AttemptResults& results) {
    const RetrySchedule schedule = schedule_of(context_.config);
    const Wall now = context_.loop.wall();
    const Wall received = context_.spool.received_of(item.message);
    const storage::QueueIdText id = storage::text_of(context_.spool.id_of(item.message));
    const bool expired = schedule.expired(received, now);
    const auto attempt = static_cast<uint16_t>(std::min<unsigned>(item.attempts + 1u, UINT16_MAX));
    const Wall until = now + schedule.wait(attempt, context_.loop.random());
    const Duration queued = std::max(now - received, Duration{});

    bool deferred = false, delivered = false;
    for (const AttemptResults::Entry& entry : results.entries_) {
        const std::string_view text = std::string_view(results.texts_).substr(entry.text_begin, entry.text_bytes);
        RecipientOutcome outcome = entry.outcome;
        metrics::DeliveryOutcome counted = metrics::DeliveryOutcome::delivered;
        std::string_view event = "delivered";
        Level level = Level::info;
        if (outcome == RecipientOutcome::deferred && expired) {
            outcome = RecipientOutcome::failed;
            counted = metrics::DeliveryOutcome::expired;
            event = "expired";
            level = Level::warning;
        } else if (outcome == RecipientOutcome::deferred) {
            counted = metrics::DeliveryOutcome::deferred;
            event = "deferred";
            deferred = true;
        } else if (outcome == RecipientOutcome::failed) {
            counted = metrics::DeliveryOutcome::failed;
            event = "failed";
            level = Level::warning;
        } else {
            delivered = true;
            counters().queue_time_ms.record(static_cast<uint64_t>(queued.ns / 1'000'000));
        }
        counters().recipients[static_cast<size_t>(counted)].add();
        results.results_.push_back({entry.recipient, outcome, attempt, until, entry.code, text});
        LogLine line = context_.line(level, event);
        line.field("id", std::string_view(id)).field("to", envelope.recipient(entry.recipient));
        line.field("route", settings().name).field("attempt", uint64_t{attempt}).field("queued", queued);
        if (entry.code) line.field("code", uint64_t{entry.code});
        line.field("reply", text);
        if (outcome == RecipientOutcome::deferred) line.field("retry_in", until - now);
        if (outcome == RecipientOutcome::failed) line.field("action", "held");
    }
    if (delivered) counters().messages_out.add();
    context_.spool.record(item.message, results.results_);
    if (deferred) defer({item.message, attempt, due_second(until)});
    results.clear();
}

void Route::count_attempt(const Item& item) {
    counters().attempts.add();
    if (item.attempts > 0) counters().retries.add();
}

void Route::say_unreadable(const Item& item) {
    context_.line(Level::error, "unreadable")
        .field("id", std::string_view(storage::text_of(context_.spool.id_of(item.message))))
        .field("route", settings().name)
        .field("remedy", "the stored message is damaged or the disk fails; see `postern spool verify`");
}

void Route::unreadable(const Item& item) {
    say_unreadable(item);
    defer({item.message, item.attempts, due_second(context_.loop.wall() + damaged_retry)});
}

void Route::expire_waiting(std::string_view reason) {
    // The queue is roughly in order of receipt, so looking at its head is enough; what is missed is seen when tried.
    const RetrySchedule schedule = schedule_of(context_.config);
    const Wall now = context_.loop.wall();
    while (!fifo_.empty() && schedule.expired(context_.spool.received_of(fifo_.front().message), now)) {
        sorter_->expire(fifo_.front(), *this, reason);
        fifo_.pop_front();
    }
}

void Route::defer(const Item& item) {
    deferred_.push_back(item);
    std::push_heap(deferred_.begin(), deferred_.end(), later);
    arm();
}

void Route::wake_in(Duration wait) {
    const Monotonic at = context_.loop.now() + wait;
    if (!wake_at_ || at < *wake_at_) wake_at_ = at;
    arm();
}

void Route::arm() {
    std::optional<Duration> wait;
    if (wake_at_) wait = *wake_at_ - context_.loop.now();
    if (!deferred_.empty()) {
        // Due times are of the wall clock, which may step: look again at least every minute.
        const Duration until = std::min(Wall{seconds(deferred_.front().due).ns} - context_.loop.wall(), minutes(1));
        if (!wait || until < *wait) wait = until;
    }
    if (!wait) return;
    context_.loop.arm(timer_, std::max(*wait, milliseconds(1)));
}

void Route::on_timer(ring::Timer&) {
    const int64_t now = context_.loop.wall().seconds();
    while (!deferred_.empty() && deferred_.front().due <= now) {
        std::pop_heap(deferred_.begin(), deferred_.end(), later);
        fifo_.push_back(deferred_.back());
        deferred_.pop_back();
    }
    if (wake_at_ && *wake_at_ <= context_.loop.now()) {
        wake_at_.reset();
        on_due();
    }
    kick();
    arm();
}

void DiscardRoute::take(const Item& item, const proto::Envelope& envelope) {
    pending_recipients(item.message, envelope, recipients_);
    for (uint32_t recipient : recipients_) results_.add(recipient, RecipientOutcome::delivered, 0, "discarded");
    settle(item, envelope, results_);
}

}  // namespace postern::gateway
