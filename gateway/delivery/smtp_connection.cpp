#include "gateway/delivery/smtp_connection.hpp"

#include "gateway/message_flags.hpp"

namespace postern::gateway {

using storage::RecipientOutcome;

SmtpConnection::SmtpConnection(SmtpRoute& route, const ring::SocketAddress& address)
    : route_(route),
      address_(address),
      stream_(route.context_.loop, *this, route.stream_limits_),
      client_(route.client_settings_, *this),
      reader_(route.context_.spool, *this) {
    stream_.set_deadline(route.context_.config.delivery.connect_timeout);
    stream_.connect(address_);
}

void SmtpConnection::deliver(const Item& item) {
    CHECK_INVARIANT(idle());
    unlink();
    item_ = item;
    has_item_ = true;
    heard_ = false;
    stream_.clear_deadline();               // the next hop owes us nothing until it is asked
    opened(reader_.open(item_.message));
}

void SmtpConnection::opened(ReadStatus status) {
    reading_ = status == ReadStatus::pending;
    if (reading_) return;
    if (status == ReadStatus::ready)
        if (auto envelope = proto::Envelope::decode(reader_.envelope())) {
            envelope_ = std::move(*envelope);
            start_transaction();
            return;
        }
    const Item item = item_;
    drop_item();
    route_.unreadable(item);
    on_ready();
}

void SmtpConnection::start_transaction() {
    route_.pending_recipients(item_.message, envelope_, indices_);
    if (indices_.empty()) {                 // all settled meanwhile
        drop_item();
        on_ready();
        return;
    }
    recipients_.clear();
    for (uint32_t index : indices_) recipients_.push_back(envelope_.recipient(index));
    const storage::MessageAttributes& attributes = reader_.attributes();
    proto::OutgoingMessage message;
    message.sender = envelope_.sender();
    message.recipients = recipients_;
    message.bytes = attributes.bytes;
    message.body = envelope_.body;
    message.smtputf8 = envelope_.smtputf8;
    message.eight_bit = attributes.flags & flag_eight_bit;
    message.dot_line = attributes.flags & flag_dot_line;
    message.ends_with_crlf = attributes.flags & flag_ends_with_crlf;
    client_.send(message, out_);
    flush();
    if (body_wanted_) pump();
}

void SmtpConnection::pump() {
    while (body_wanted_ && !reading_ && stream_.unsent_bytes() < unsent_high) {
        std::string_view octets;
        switch (reader_.next(octets)) {
            case ReadStatus::pending: reading_ = true; return;
            case ReadStatus::failed:
                route_.say_unreadable(item_);
                heard_ = true;              // an attempt, although the fault is ours
                lose("the stored message cannot be read");
                return;
            case ReadStatus::end:
                body_wanted_ = false;
                client_.body_end(out_);
                flush();
                return;
            case ReadStatus::ready:
                route_.counters().bytes_out.add(octets.size());
                if (client_.body_unchanged()) {
                    flush();
                    stream_.send(octets);
                    client_.body_passed(octets);
                } else {
                    client_.body(octets, out_);
                    flush();
                }
        }
    }
}

void SmtpConnection::flush() {
    if (!out_.empty()) stream_.send(out_);
    out_.clear();
    if (!over_ && client_.timeout() > Duration{}) stream_.set_deadline(client_.timeout());
}

size_t SmtpConnection::on_received(std::string_view octets) {
    if (over_) return octets.size();
    const unsigned before = messages_;
    client_.feed(octets, out_);
    if (messages_ == before) heard_ = true;     // else it was about the message before
    flush();
    if (body_wanted_ && !over_) pump();
    return octets.size();
}

void SmtpConnection::on_ready() {
    if (over_) return;
    if (!was_ready_) {
        was_ready_ = true;
        route_.connection_ready(*this);
    }
    const config::Route& settings = route_.settings();
    if (messages_ >= settings.messages_per_connection || route_.stopping_) {
        leave();
        return;
    }
    if (auto item = route_.next_item()) {
        deliver(*item);
        return;
    }
    if (!linked()) route_.idle_.push_back(*this);
    stream_.set_deadline(route_.context_.config.delivery.idle_connection);
}

void SmtpConnection::leave() {
    if (leaving_) return;
    unlink();
    leaving_ = true;
    client_.quit(out_);
    flush();
}

void SmtpConnection::abort() {
    aborting_ = true;
    lose("shutting down");
}

void SmtpConnection::on_recipient_done(size_t recipient, proto::Outcome outcome, const proto::RemoteReply& reply) {
    RecipientOutcome stored = RecipientOutcome::deferred;
    if (outcome == proto::Outcome::delivered) stored = RecipientOutcome::delivered;
    if (outcome == proto::Outcome::failed) stored = RecipientOutcome::failed;
    results_.add(indices_[recipient], stored, reply.code, reply.text);
    service_closed_ |= reply.code == 421;
}

void SmtpConnection::on_message_done() {
    const Item item = item_;
    if (closed_while_idle()) {
        results_.clear();
        drop_item();
        route_.give_back(item);
        return;
    }
    ++messages_;
    if (aborting_) results_.drop_unanswered();
    if (!results_.empty()) {
        route_.count_attempt(item);
        route_.settle(item, envelope_, results_);
    }
    drop_item();
}

// The next hop closed the connection, with a 421 or without, just when we used it again: no attempt was made.
bool SmtpConnection::closed_while_idle() const { return (over_ || service_closed_) && !heard_ && messages_ > 0; }

void SmtpConnection::drop_item() {
    reader_.close();
    has_item_ = false;
    body_wanted_ = false;
    reading_ = false;
}

void SmtpConnection::on_session_over(bool refused, const proto::RemoteReply& reply) {
    over_ = true;
    leaving_ = true;
    unlink();
    if (refused || !was_ready_) failure_ = reply.code ? std::to_string(reply.code) + " " + std::string(reply.text) : std::string(reply.text);
    if (has_item_) {                        // it was still being read: not tried
        const Item item = item_;
        drop_item();
        route_.give_back(item);
        // A next hop that hangs up on whoever it has greeted must not make us call again and again.
        if (messages_ == 0 && !aborting_) route_.unreachable(reply.text);
    }
    stream_.close();
}

void SmtpConnection::lose(std::string_view why) {
    if (!over_) {
        over_ = true;                       // before the outcomes come: nothing more is sent
        client_.connection_lost(why);
    }
    stream_.abort();
}

void SmtpConnection::on_readable() {
    if (!has_item_) return;
    reading_ = false;
    if (body_wanted_) {
        pump();
    } else {
        opened(reader_.open(item_.message));
    }
}

void SmtpConnection::on_connected() {
    connected_ = true;
    route_.counters().connections_opened.add();
    stream_.set_deadline(client_.timeout());
}

void SmtpConnection::on_sent() {
    if (body_wanted_ && !over_) pump();
}

void SmtpConnection::on_end_of_input() {
    if (!over_) {
        over_ = true;
        client_.connection_lost("the next hop closed the connection");
    }
    stream_.close();
}

void SmtpConnection::on_deadline() {
    if (idle()) {
        leave();
        return;
    }
    if (!connected_) failure_ = "connection timed out";
    lose(connected_ ? "the next hop did not answer in time" : "connection timed out");
}

void SmtpConnection::on_closed(int error) {
    if (!over_) {
        over_ = true;
        const std::string why = error ? os_error(error, "connection to " + address_.text()).text : "connection closed";
        if (failure_.empty()) failure_ = why;
        client_.connection_lost(why);
    }
    if (!was_ready_) route_.connection_failed(*this, failure_.empty() ? "the next hop closed the connection" : failure_);
    route_.connection_closed(*this);        // destroys this
}

}  // namespace postern::gateway
