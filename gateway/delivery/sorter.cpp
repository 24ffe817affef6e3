#include "gateway/delivery/sorter.hpp"

#include <algorithm>

namespace postern::gateway {

// One envelope being read.
class Sorter::Reading final : storage::MessageReaderHandler {
public:
    explicit Reading(Sorter& sorter) : sorter_(sorter), reader_(sorter.context_.spool, *this) {}
    bool idle() const { return !active_; }
    void start(const Task& task) {
        task_ = task;
        active_ = true;
        ++sorter_.reading_;
        handle(reader_.open(task.item.message));
    }

private:
    using Status = storage::MessageReader::Status;
    void on_readable() override {
        handle(reader_.open(task_.item.message));
        sorter_.start_more();
    }
    void handle(Status status) {
        if (status == Status::pending) return;
        Result<proto::Envelope> envelope = fail(Error{});
        if (status == Status::ready) envelope = proto::Envelope::decode(reader_.envelope());
        reader_.close();
        active_ = false;
        --sorter_.reading_;
        if (envelope) {
            sorter_.finish(task_, *envelope);
        } else {
            sorter_.put_off(task_);
        }
    }

    Sorter& sorter_;
    storage::MessageReader reader_;
    Task task_;
    bool active_ = false;
};

Sorter::Sorter(DeliveryContext& context, Dispatch dispatch) : context_(context), dispatch_(std::move(dispatch)), timer_(*this) {}
Sorter::~Sorter() = default;

void Sorter::sort(const Item& item) {
    tasks_.push_back({item, nullptr});
    start_more();
}

void Sorter::expire(const Item& item, Route& route, std::string_view reason) {
    reason_ = reason;
    tasks_.push_back({item, &route});
    start_more();
}

void Sorter::start_more() {
    if (starting_) return;              // a reading that finished at once: the loop below goes on
    starting_ = true;
    while (!stopping_ && !tasks_.empty() && reading_ < readers_max) {
        auto free = std::find_if(readings_.begin(), readings_.end(), [](const auto& reading) { return reading->idle(); });
        if (free == readings_.end()) free = readings_.insert(free, std::make_unique<Reading>(*this));
        const Task task = tasks_.front();
        tasks_.pop_front();
        (*free)->start(task);
    }
    starting_ = false;
}

void Sorter::put_off(const Task& task) {
    context_.line(Level::error, "unreadable")
        .field("id", std::string_view(storage::text_of(context_.spool.id_of(task.item.message))))
        .field("remedy", "the stored message is damaged or the disk fails; see `postern spool verify`");
    put_off_.push_back(task);
    if (!timer_.armed()) context_.loop.arm(timer_, damaged_retry);
}

void Sorter::on_timer(ring::Timer&) {
    tasks_.insert(tasks_.end(), put_off_.begin(), put_off_.end());
    put_off_.clear();
    start_more();
}

void Sorter::finish(const Task& task, const proto::Envelope& envelope) {
    if (!task.expire_on) {
        dispatch_(task.item, envelope);
        return;
    }
    task.expire_on->pending_recipients(task.item.message, envelope, recipients_);
    for (uint32_t recipient : recipients_) results_.add(recipient, storage::RecipientOutcome::deferred, 0, reason_);
    task.expire_on->settle(task.item, envelope, results_);      // its time is up: deferred becomes failed there
}

}  // namespace postern::gateway
