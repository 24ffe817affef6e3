#include "gateway/delivery/smtp_route.hpp"

#include <algorithm>

#include "gateway/delivery/smtp_connection.hpp"

namespace postern::gateway {

namespace {

constexpr Duration resolved_for = minutes(1);       // a name's addresses are used so long
constexpr Duration down_first = seconds(1);         // back-off of a next hop that cannot be reached
constexpr Duration down_most = minutes(1);
constexpr Duration busy_retry = milliseconds(50);   // other shards hold all connections of the route

}  // namespace

SmtpRoute::SmtpRoute(DeliveryContext& context, size_t index) : Route(context, index) {
    const config::Target& target = settings().to;
    client_settings_.hostname = context.config.server.hostname;
    client_settings_.lmtp = target.kind != config::Target::Kind::smtp;
    stream_limits_.unsent_bytes_max = 0;            // SmtpConnection::pump() watches it
    if (target.kind == config::Target::Kind::lmtp_unix) {
        ring::SocketAddress address;
        address.family = ring::SocketAddress::Family::unix_path;
        address.path = target.path;
        addresses_.push_back(address);
    } else if (auto address = ring::parse_host_address(target.host)) {
        address->port = target.port;
        addresses_.push_back(*address);
    } else {
        has_name_ = true;
    }
}

SmtpRoute::~SmtpRoute() = default;

bool SmtpRoute::busy() const {
    return std::any_of(connections_.begin(), connections_.end(), [](const auto& c) { return c->busy(); });
}

void SmtpRoute::stop() {
    Route::stop();
    while (!idle_.empty()) idle_.front().leave();
}

void SmtpRoute::abort() {
    for (auto& connection : connections_) connection->abort();
}

void SmtpRoute::kick() {
    if (stopping_) return;
    while (waiting() && !idle_.empty()) {
        auto item = next();
        idle_.front().deliver(*item);
    }
    if (!waiting() || !resolve()) return;
    const Monotonic now = context_.loop.now();
    if (now < down_until_) {
        wake_in(down_until_ - now);
        return;
    }
    // A next hop that is or may be down is probed with one connection; one that serves gets what the queue can use.
    const size_t wanted = failures_ > 0 || addresses_failed_ > 0 ? 1 : waiting_count();
    while (opening_ < wanted) {
        if (!context_.budgets[index()].try_take()) {
            if (connection_count_ == 0) wake_in(busy_retry);
            return;
        }
        open_connection();
    }
}

void SmtpRoute::open_connection() {
    const ring::SocketAddress& address = addresses_[next_address_ % addresses_.size()];
    ++opening_;
    ++connection_count_;
    counters().connections_open.set(connection_count_);
    connections_.push_back(std::make_unique<SmtpConnection>(*this, address));
}

void SmtpRoute::connection_ready(SmtpConnection&) {
    --opening_;
    reached();
}

void SmtpRoute::reached() {
    if (failures_ > 0) context_.line(Level::info, "next_hop_up").field("route", settings().name).field("to", settings().to_text);
    failures_ = 0;
    addresses_failed_ = 0;
    down_until_ = {};
}

void SmtpRoute::connection_failed(SmtpConnection& connection, std::string_view why) {
    --opening_;
    counters().connections_failed.add();
    // Connections are opened many at once: one failure of an address is enough to go on to the next.
    if (connection.address() != addresses_[next_address_ % addresses_.size()]) return;
    ++next_address_;
    if (connection_count_ > opening_ + 1) {         // it serves others: it is not down, but wants no more connections
        down_until_ = context_.loop.now() + down_first;
        return;
    }
    if (++addresses_failed_ < addresses_.size() || (failures_ == 0 && opening_ > 0)) return;
    unreachable(why);
}

void SmtpRoute::unreachable(std::string_view why) {
    addresses_failed_ = 0;
    ++failures_;
    const Duration wait = RetrySchedule{down_first, down_most, {}}.wait(failures_, context_.loop.random());
    down_until_ = context_.loop.now() + wait;
    if (failures_ == 1 || wait.ns >= down_most.ns / 2)
        context_.line(Level::warning, "next_hop_down")
            .field("route", settings().name)
            .field("to", settings().to_text)
            .field("reason", why)
            .field("waiting", uint64_t{waiting_count()})
            .field("retry_in", wait);
    expire_waiting(why);
    if (waiting()) wake_in(wait);
}

void SmtpRoute::connection_closed(SmtpConnection& connection) {
    --connection_count_;
    counters().connections_open.set(connection_count_);
    context_.budgets[index()].give_back();
    std::erase_if(connections_, [&](const auto& owned) { return owned.get() == &connection; });
    kick();
}

bool SmtpRoute::resolve() {
    if (!has_name_) return true;
    if (!addresses_.empty() && context_.loop.now() - resolved_ < resolved_for) return true;
    if (!resolving_) {
        const Monotonic now = context_.loop.now();
        if (failures_ > 0 && now < down_until_) {
            wake_in(down_until_ - now);
        } else if (context_.workers.post(context_.worker_number, *this, index())) {
            resolving_ = true;
        } else {
            wake_in(busy_retry);
        }
    }
    return !addresses_.empty();             // stale ones serve meanwhile
}

void SmtpRoute::run() { resolution_ = ring::resolve_host(settings().to.host, settings().to.port); }

void SmtpRoute::done() {
    resolving_ = false;
    if (resolution_.addresses.empty() && addresses_.empty()) {
        unreachable(resolution_.text);
        return;
    }
    resolved_ = context_.loop.now();        // a failed look-up keeps the old addresses for another round
    if (!resolution_.addresses.empty()) addresses_ = std::move(resolution_.addresses);
    resolution_ = {};
    kick();
}

}  // namespace postern::gateway
