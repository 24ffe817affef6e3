#include "gateway/delivery/maildir_route.hpp"

#include <algorithm>

#include "gateway/delivery/maildir.hpp"

namespace postern::gateway {

namespace {

constexpr Duration busy_retry = milliseconds(50);       // other shards, or the workers' lane, are full

}  // namespace

// One message on its way into the Maildir, a copy for each recipient.
class MaildirRoute::Attempt final : private storage::MessageReaderHandler, private ring::Job {
public:
    explicit Attempt(MaildirRoute& route) : route_(route), reader_(route.context_.spool, *this) {}
    bool idle() const { return !active_; }
    void start(const Item& item) {
        item_ = item;
        active_ = true;
        ++route_.active_;
        route_.count_attempt(item);
        opened(reader_.open(item.message));
    }

private:
    using ReadStatus = storage::MessageReader::Status;

    void on_readable() override { opened(reader_.open(item_.message)); }

    void opened(ReadStatus status) {
        if (status == ReadStatus::pending) return;
        Result<proto::Envelope> envelope = fail(Error{});
        if (status == ReadStatus::ready) envelope = proto::Envelope::decode(reader_.envelope());
        bytes_ = status == ReadStatus::ready ? reader_.attributes().bytes : 0;
        reader_.close();
        if (!envelope) {
            finish();
            route_.unreadable(item_);
            route_.kick();              // for those that wait behind it
            return;
        }
        envelope_ = std::move(*envelope);
        route_.pending_recipients(item_.message, envelope_, recipients_);
        stored_ = route_.context_.spool.stored(item_.message);
        id_ = storage::text_of(route_.context_.spool.id_of(item_.message));
        received_ = route_.context_.spool.received_of(item_.message);
        if (route_.context_.workers.post(route_.context_.worker_number, *this, item_.message)) return;
        finish();
        route_.put_back(item_);
        route_.lane_full_ = true;
        route_.wake_in(busy_retry);
    }

    // On a worker.
    void run() override {
        written_.clear();
        unreadable_ = false;
        for (uint32_t recipient : recipients_) written_.push_back(write_copy(recipient));
    }

    Result<void> write_copy(uint32_t recipient) {
        const std::string& root = route_.settings().to.path;
        MaildirWriter writer;
        const std::string name =
            maildir_unique_name(received_, id_, recipient, route_.context_.config.server.hostname);
        if (auto opened = writer.open(root, name, {envelope_.sender(), envelope_.recipient(recipient)}); !opened)
            return opened;
        Result<void> appended;
        auto read = stored_.read([&](std::string_view octets) {
            appended = writer.append(octets);
            return appended.has_value();
        });
        if (appended && read) return writer.commit();
        writer.abandon();
        unreadable_ |= !read;
        return appended ? read : appended;
    }

    void done() override {
        for (size_t i = 0; i < recipients_.size(); ++i) {
            if (written_[i]) {
                results_.add(recipients_[i], storage::RecipientOutcome::delivered, 0, "written to the Maildir");
                route_.counters().bytes_out.add(bytes_);
            } else {
                results_.add(recipients_[i], storage::RecipientOutcome::deferred, 0, written_[i].error().text);
            }
        }
        if (unreadable_) {
            route_.say_unreadable(item_);
            route_.context_.metrics.damage_found(1);
        }
        route_.settle(item_, envelope_, results_);
        finish();
        route_.kick();
    }

    void finish() {
        stored_ = {};
        active_ = false;
        --route_.active_;
        route_.context_.budgets[route_.index()].give_back();
    }

    MaildirRoute& route_;
    storage::MessageReader reader_;
    Item item_;
    proto::Envelope envelope_;
    uint64_t bytes_ = 0;
    std::vector<uint32_t> recipients_;
    storage::StoredMessage stored_;
    storage::QueueIdText id_{};
    Wall received_;
    std::vector<Result<void>> written_;
    AttemptResults results_;
    bool unreadable_ = false;               // the worker found it so
    bool active_ = false;
};

MaildirRoute::MaildirRoute(DeliveryContext& context, size_t index) : Route(context, index) {}
MaildirRoute::~MaildirRoute() = default;

void MaildirRoute::on_due() {
    lane_full_ = false;
    kick();
}

void MaildirRoute::kick() {
    if (kicking_) return;               // an attempt that ended at once: the loop below goes on
    kicking_ = true;
    while (!stopping_ && !lane_full_ && waiting()) {
        if (!context_.budgets[index()].try_take()) {
            if (active_ == 0) wake_in(busy_retry);
            break;
        }
        auto idle = std::find_if(attempts_.begin(), attempts_.end(), [](const auto& attempt) { return attempt->idle(); });
        if (idle == attempts_.end()) idle = attempts_.insert(idle, std::make_unique<Attempt>(*this));
        (*idle)->start(*next());
    }
    kicking_ = false;
}

}  // namespace postern::gateway
