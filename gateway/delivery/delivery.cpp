#include "gateway/delivery/delivery.hpp"

#include <algorithm>

#include "gateway/delivery/maildir_route.hpp"
#include "gateway/delivery/smtp_route.hpp"

namespace postern::gateway {

namespace {

std::unique_ptr<Route> make_route(DeliveryContext& context, size_t index) {
    using Kind = config::Target::Kind;
    switch (context.config.routes[index].to.kind) {
        case Kind::discard: return std::make_unique<DiscardRoute>(context, index);
        case Kind::maildir: return std::make_unique<MaildirRoute>(context, index);
        case Kind::smtp:
        case Kind::lmtp:
        case Kind::lmtp_unix: break;
    }
    return std::make_unique<SmtpRoute>(context, index);
}

}  // namespace

Delivery::Delivery(const DeliveryContext& context)
    : context_(context),
      sorter_(context_, [this](const Item& item, const proto::Envelope& envelope) { dispatch(item, envelope); }) {
    for (size_t i = 0; i < context_.config.routes.size(); ++i) {
        routes_.push_back(make_route(context_, i));
        sorter_.watch(*routes_.back());
    }
}

void Delivery::take(storage::MessageIndex message, const proto::Envelope& envelope) {
    dispatch({message, 0, 0}, envelope);
}

void Delivery::recover(const storage::RecoveredMessage& message) {
    sorter_.sort({message.index, message.attempts, static_cast<uint32_t>(std::max<int64_t>(0, message.not_before.seconds()))});
}

void Delivery::dispatch(const Item& item, const proto::Envelope& envelope) {
    touched_.clear();
    bool unrouted = false;
    for (uint32_t i = 0; i < envelope.recipient_count(); ++i) {
        if (context_.spool.state_of(item.message, i) != storage::RecipientState::pending) continue;
        const size_t route = context_.policy.route_of(envelope.recipient(i));
        if (route == SIZE_MAX) {
            unrouted = true;
        } else if (std::find(touched_.begin(), touched_.end(), route) == touched_.end()) {
            touched_.push_back(route);
        }
    }
    // Only when the configuration lost a route: the message stays in the spool, and is looked at again at the next start.
    if (unrouted)
        context_.line(Level::error, "no_route")
            .field("id", std::string_view(storage::text_of(context_.spool.id_of(item.message))))
            .field("remedy", "add a [[route]] for its recipients and restart");
    // A message that a route settles at once may be complete, and its index gone, before the next route looks: each route
    // but the last leaves at least one recipient of another route pending.
    for (size_t route : touched_) routes_[route]->take(item, envelope);
}

void Delivery::stop() {
    sorter_.stop();
    for (auto& route : routes_) route->stop();
}

void Delivery::abort() {
    for (auto& route : routes_) route->abort();
}

bool Delivery::closed() const {
    return std::all_of(routes_.begin(), routes_.end(), [](const auto& route) { return route->closed(); });
}

bool Delivery::busy() const {
    return sorter_.busy() || std::any_of(routes_.begin(), routes_.end(), [](const auto& route) { return route->busy(); });
}

void Delivery::publish() {
    for (auto& route : routes_) route->publish();
}

}  // namespace postern::gateway
