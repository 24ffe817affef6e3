#include "gateway/session.hpp"

#include <algorithm>

#include "gateway/message_flags.hpp"
#include "gateway/shard.hpp"
#include "proto/trace.hpp"

namespace postern::gateway {

using proto::Reply;
using proto::Stage;
using proto::Verdict;
using storage::SpoolError;

namespace {

constexpr Duration goodbye_most = seconds(10);
constexpr Reply no_space{452, "4.3.1", "Insufficient system storage, try again later"};
constexpr Reply local_error{451, "4.3.0", "Local error in processing, try again later"};
constexpr Reply relay_denied{550, "5.7.1", "Relaying denied"};
constexpr Reply no_route{451, "4.4.4", "No route to this domain at present"};

// The one place where storage errors become replies (P5: local trouble is 4xx).
const Reply& reply_to(SpoolError error) { return error == SpoolError::failed ? local_error : no_space; }

// Why, for the metrics, from what was answered; local causes are counted where they are known.
metrics::Refusal reason_of(Stage stage, const Reply& reply) {
    using metrics::Refusal;
    const std::string_view enhanced = reply.enhanced;
    if (reply.code == 452) return enhanced == "4.5.3" ? Refusal::recipients : Refusal::space;
    if (reply.code == 451) return Refusal::local_error;
    if (reply.code == 552) return Refusal::size;
    if (reply.code == 503) return Refusal::sequence;
    if (reply.code == 421) {
        if (enhanced == "4.3.2") return Refusal::shutting_down;
        if (enhanced == "4.4.2") return Refusal::timeout;
        return Refusal::too_many_errors;
    }
    if (enhanced == "5.4.6") return Refusal::loop;
    if (enhanced == "5.7.1") return stage == Stage::rcpt ? Refusal::relay : Refusal::policy;
    if (stage == Stage::end_of_data && reply.code == 550) return Refusal::bare_newline;
    if (reply.code == 500 || reply.code == 501 || reply.code == 502 || reply.code == 504 || reply.code == 555 || reply.code == 553)
        return Refusal::syntax;
    return Refusal::other;
}

uint16_t flags_of(const proto::DataFacts& facts) {
    uint16_t flags = 0;
    if (facts.eight_bit) flags |= flag_eight_bit;
    if (facts.dot_line) flags |= flag_dot_line;
    if (facts.ends_with_crlf) flags |= flag_ends_with_crlf;
    return flags;
}

}  // namespace

Session::Session(Shard& shard, uint32_t slot, UniqueFd connection)
    : shard_(shard),
      slot_(slot),
      stream_(shard.loop(), *this, shard.stream_limits()),
      machine_(shard.server_settings(), *this),
      writer_(shard.spool()),
      client_(ring::peer_address(connection.get())),
      since_(shard.loop().now()),
      may_relay_(shard.policy().may_relay(client_)) {
    stream_.start(std::move(connection));
}

void Session::start() {
    std::string& out = shard_.reply_scratch();
    machine_.greet(out);
    after_feed(out);
}

size_t Session::on_received(std::string_view octets) {
    std::string& out = shard_.reply_scratch();
    const size_t consumed = machine_.feed(octets, out);
    writer_.settle();
    after_feed(out);
    // The turn's budget of commands is spent: the others get their turn, then this one goes on.
    if (consumed < octets.size() && !machine_.waiting()) stream_.resume();
    return consumed;
}

// Replies go out, and the connection gets the deadline and the care that its state asks for.
void Session::after_feed(std::string& out) {
    if (!out.empty()) stream_.send(out);
    if (machine_.closing()) {
        stream_.close();
        return;
    }
    const config::Limits& limits = shard_.config().limits;
    if (!machine_.in_data()) {
        stream_.set_deadline(limits.command_timeout);
        return;
    }
    stream_.set_deadline(limits.data_timeout);
    // The terminator may be held back by the client's Nagle algorithm until what it sent is acknowledged.
    if (!stream_.more_expected()) stream_.quick_ack();
    if (shard_.spool().congested() && !Relief::linked()) {
        stream_.pause();
        shard_.spool().wait_for_relief(*this);
    }
}

void Session::on_relieved() { stream_.resume(); }

void Session::on_end_of_input() {
    input_ended_ = true;
    if (committing_) return;            // the reply is still owed, and may still be read
    machine_.end_of_input();
    stream_.close();
}

void Session::on_deadline() {
    if (stream_.closing()) {
        stream_.abort();
        return;
    }
    if (committing_) {                  // the client is not to blame
        stream_.set_deadline(shard_.config().limits.command_timeout);
        return;
    }
    std::string& out = shard_.reply_scratch();
    machine_.time_out(out);
    stream_.send(out);
    stream_.close();
    // The deadline that fired is gone, and the client may not read.
    stream_.set_deadline(std::min(goodbye_most, shard_.config().limits.command_timeout));
}

void Session::shut_down() {
    if (stream_.closing()) return;
    std::string& out = shard_.reply_scratch();
    machine_.shut_down(out);
    after_feed(out);
}

void Session::abort() {
    if (!closed_) stream_.abort();
}

void Session::on_closed(int error) {
    closed_ = true;
    if (error == ENOBUFS) shard_.metrics().refused(metrics::Refusal::unsent);
    if (!committing_) {
        machine_.end_of_input();        // whatever was open is abandoned
        writer_.abandon();
    }
    shard_.metrics().connection_closed(shard_.loop().now() - since_);
    line(Level::debug, "disconnected").field("error", static_cast<int64_t>(error));
    finish_if_done();
}

void Session::finish_if_done() {
    if (closed_ && !committing_) shard_.session_over(slot_);        // destroys this
}

// --- Judgements

Verdict Session::room_for(uint64_t bytes) {
    if (!shard_.spool().healthy()) return Verdict::refuse(local_error);
    if (!shard_.spool().has_room(bytes)) return Verdict::refuse(no_space);
    return Verdict::accept();
}

Verdict Session::on_mail(const proto::Envelope& envelope) { return room_for(envelope.declared_bytes); }

Verdict Session::on_recipient(const proto::Mailbox& mailbox, std::string_view canonical) {
    using Judgement = RecipientPolicy::Judgement;
    switch (shard_.policy().judge(may_relay_, mailbox, canonical)) {
        case Judgement::accept: return Verdict::accept();
        case Judgement::relay_denied: return Verdict::refuse(relay_denied);
        case Judgement::no_route: break;
    }
    return Verdict::refuse(no_route);
}

Verdict Session::on_data_start(const proto::Envelope& envelope) {
    if (Verdict verdict = room_for(envelope.declared_bytes); verdict.kind != Verdict::Kind::accept) return verdict;
    id_ = shard_.spool().next_id();
    trace_written_ = false;
    store_error_ = 0;
    if (auto begun = writer_.begin(id_); !begun) return Verdict::refuse(reply_to(begun.error()));
    return Verdict::accept();
}

void Session::write_trace() {
    trace_written_ = true;
    const storage::QueueIdText id = storage::text_of(id_);
    const std::string client = client_.host_text();
    proto::TraceFacts facts;
    facts.helo = machine_.helo();
    facts.client_address = client;
    facts.client_is_ipv6 = client_.family == ring::SocketAddress::Family::ipv6;
    facts.hostname = shard_.server_settings().hostname;
    facts.queue_id = id;
    facts.esmtp = machine_.esmtp();
    facts.smtputf8 = machine_.envelope().smtputf8;
    if (machine_.envelope().recipient_count() == 1) facts.single_recipient = machine_.envelope().recipient(0);
    facts.received = shard_.loop().wall();
    // Lives until settle() or commit(), as the slices of the message do: both come before the next trace is written.
    std::string& trace = shard_.trace_scratch();
    trace.clear();
    proto::append_received(trace, facts);
    append(trace);
}

bool Session::append(std::string_view slice) {
    if (store_error_) return false;
    if (auto appended = writer_.append(slice); !appended) {
        store_error_ = static_cast<uint8_t>(1 + static_cast<uint8_t>(appended.error()));
        writer_.abandon();
        return false;
    }
    return true;
}

void Session::on_data(std::string_view slice) {
    if (!trace_written_) write_trace();
    append(slice);
}

Verdict Session::on_data_end(const proto::Envelope& envelope, const proto::DataFacts& facts) {
    if (!trace_written_) write_trace();                     // an empty message
    if (store_error_) return Verdict::refuse(reply_to(static_cast<SpoolError>(store_error_ - 1)));
    std::string& encoded = shard_.envelope_scratch();
    encoded.clear();
    envelope.encode(encoded);
    storage::MessageAttributes attributes;
    attributes.received = shard_.loop().wall();
    attributes.recipient_count = static_cast<uint32_t>(envelope.recipient_count());
    attributes.flags = flags_of(facts);
    committing_ = true;
    committing_generation_ = machine_.generation();
    shard_.metrics().message_received(writer_.bytes(), attributes.recipient_count);
    writer_.commit(encoded, attributes, *this);
    return Verdict::pending();
}

void Session::on_abandoned() { writer_.abandon(); }

void Session::on_committed(Result<storage::MessageIndex, SpoolError> outcome) {
    committing_ = false;
    std::string& out = shard_.reply_scratch();
    if (outcome) {
        const storage::QueueIdText id = storage::text_of(id_);
        const proto::Envelope& envelope = machine_.envelope();
        line(Level::info, "accepted")
            .field("id", std::string_view(id))
            .field("client", client_.host_text())
            .field("helo", machine_.helo())
            .field("from", envelope.sender())
            .field("to", envelope.recipient(0))
            .field("recipients", uint64_t{envelope.recipient_count()});
        std::string& text = shard_.trace_scratch();
        text.assign("Ok: queued as ");
        text.append(std::string_view(id));
        shard_.delivery().take(*outcome, envelope);
        machine_.verdict(committing_generation_, {250, "2.0.0", text}, out);
    } else {
        machine_.verdict(committing_generation_, reply_to(outcome.error()), out);
    }
    if (!closed_) {
        after_feed(out);
        if (input_ended_) {
            stream_.close();
        } else {
            stream_.resume();
        }
    }
    finish_if_done();
}

// --- Bookkeeping

void Session::on_command(proto::Verb verb) { shard_.metrics().command(static_cast<size_t>(verb)); }

void Session::on_reply(Stage stage, uint16_t code) { shard_.metrics().reply(static_cast<size_t>(stage), code); }

void Session::on_refused(Stage stage, const Reply& reply, std::string_view about) {
    shard_.metrics().refused(reason_of(stage, reply));
    line(Level::info, "refused")
        .field("client", client_.host_text())
        .field("stage", proto::stage_name(stage))
        .field("code", uint64_t{reply.code})
        .field("enhanced", reply.enhanced)
        .field("reason", reply.text)
        .field("about", about);
}

LogLine Session::line(Level level, std::string_view event) const {
    return LogLine(shard_.log(), level, event);
}

}  // namespace postern::gateway
