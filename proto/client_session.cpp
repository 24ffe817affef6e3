// The connection: opening, replies to the right handler, outcomes, the end.  One message is in client_message.cpp.
#include <charconv>

#include "proto/client_session_impl.hpp"

namespace postern::proto {

namespace {

constexpr Duration body_block_wait = minutes(3);    // RFC 5321 §4.5.3.2.5

}  // namespace

// In the order of Awaited.
const ClientSession::Impl::Rule ClientSession::Impl::rules[] = {
    {"the connection", 2, minutes(5), &Impl::greeting_answered},
    {"EHLO", 2, minutes(5), &Impl::hello_answered},
    {"HELO", 2, minutes(5), &Impl::helo_answered},
    {"RSET", 2, minutes(5), &Impl::reset_answered},
    {"MAIL", 2, minutes(5), &Impl::mail_answered},
    {"RCPT", 2, minutes(5), &Impl::rcpt_answered},
    {"DATA", 3, minutes(2), &Impl::data_answered},
    {"BDAT", 2, minutes(10), &Impl::content_answered},
    {"the end of data", 2, minutes(10), &Impl::content_answered},
    {"QUIT", 2, seconds(5), &Impl::quit_answered},
};

void ClientSession::Impl::append_number(std::string& out, uint64_t number) {
    std::array<char, 20> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
    out.append(digits.data(), end);
}

void ClientSession::Impl::take(const RemoteReply& reply, std::string& out) {
    if (awaited_.empty()) return take_unasked(reply);
    const Rule& asked = rule();
    if (reply.code == 421) return end_session(Outcome::deferred, reply);
    if (!refusal(reply) && reply.code / 100 != asked.positive_digit) return out_of_step(asked.name, reply);
    awaited_.pop();
    (this->*asked.answered)(reply, out);
}

void ClientSession::Impl::take_unasked(const RemoteReply& reply) {
    if (reply.code == 421) return end_session(Outcome::deferred, reply);    // the one reply that needs no command (§3.8)
    // A refusal in the middle of the data (too big, no space) is the verdict, but the data cannot be taken back: both
    // sides can only hang up.
    if (body_wanted_ && refusal(reply)) return end_session(outcome_of(reply), reply);
    out_of_step("nothing", reply);
}

void ClientSession::Impl::greeting_answered(const RemoteReply& reply, std::string& out) {
    if (refusal(reply)) return end_session(Outcome::deferred, reply);
    out.append(settings_.lmtp ? "LHLO " : "EHLO ").append(settings_.hostname).append("\r\n");
    awaited_.push(Awaited::hello);
}

void ClientSession::Impl::hello_answered(const RemoteReply& reply, std::string& out) {
    if (!refusal(reply)) {
        offered_ = parse_capabilities(reply.text);
        return become_ready();
    }
    if (reply.code < 500 || settings_.lmtp) return end_session(Outcome::deferred, reply);
    out.append("HELO ").append(settings_.hostname).append("\r\n");
    awaited_.push(Awaited::helo);
}

void ClientSession::Impl::helo_answered(const RemoteReply& reply, std::string&) {
    if (refusal(reply)) return end_session(Outcome::deferred, reply);
    become_ready();
}

void ClientSession::Impl::quit_answered(const RemoteReply& reply, std::string&) {
    end_session(Outcome::deferred, reply);
}

void ClientSession::Impl::decide(size_t recipient, Outcome outcome, const RemoteReply& reply) {
    CHECK_INVARIANT(recipients_[recipient] != Recipient::decided && undecided_ > 0);
    recipients_[recipient] = Recipient::decided;
    --undecided_;
    events_.on_recipient_done(recipient, outcome, reply);
}

void ClientSession::Impl::decide_all(Outcome outcome, const RemoteReply& reply) {
    for (size_t i = 0; i < recipients_.size() && undecided_ > 0; ++i) {
        if (recipients_[i] != Recipient::decided) decide(i, outcome, reply);
    }
}

void ClientSession::Impl::become_ready() {
    stage_ = Stage::idle;
    served_ = true;
    ready_due_ = true;
}

// A loop, not a recursion: on_ready() may send a message that is decided at once, which makes us ready again.
void ClientSession::Impl::announce_ready() {
    if (announcing_) return;
    announcing_ = true;
    while (ready_due_) {
        ready_due_ = false;
        events_.on_ready();
    }
    announcing_ = false;
}

void ClientSession::Impl::end_session(Outcome outcome, const RemoteReply& reply) {
    const bool was_sending = stage_ == Stage::sending;
    stage_ = Stage::over;
    body_wanted_ = false;
    ready_due_ = false;
    decide_all(outcome, reply);
    if (was_sending) events_.on_message_done();
    events_.on_session_over(!served_, reply);
}

void ClientSession::Impl::out_of_step(std::string_view what, const RemoteReply& reply) {
    why_.assign("unexpected reply to ").append(what).append(": ");
    if (reply.code != 0) {
        append_number(why_, reply.code);
        why_ += ' ';
    }
    why_.append(reply.text);
    end_session(Outcome::deferred, {0, {}, why_});
}

ClientSession::ClientSession(const ClientSettings& settings, ClientEvents& events)
    : impl_(std::make_unique<Impl>(settings, events)) {}

ClientSession::~ClientSession() = default;

void ClientSession::feed(std::string_view octets, std::string& out) {
    while (!octets.empty() && impl_->stage_ != Impl::Stage::over) {
        size_t consumed = 0;
        const ReplyParser::Status status = impl_->parser_.feed(octets, consumed);
        octets.remove_prefix(consumed);
        if (status == ReplyParser::Status::more) return;
        if (status == ReplyParser::Status::reply) {
            impl_->take(impl_->parser_.reply(), out);
        } else {
            impl_->out_of_step(impl_->awaited_.empty() ? "nothing" : impl_->rule().name, impl_->parser_.reply());
        }
        impl_->pump(out);
        impl_->announce_ready();
    }
}

void ClientSession::send(const OutgoingMessage& message, std::string& out) {
    CHECK_INVARIANT(ready() && !message.recipients.empty());
    impl_->begin(message);
    impl_->pump(out);
    impl_->announce_ready();
}

void ClientSession::body(std::string_view octets, std::string& out) {
    if (impl_->stage_ == Impl::Stage::over) return;
    impl_->count_body(octets);
    if (body_unchanged()) {
        impl_->stuffer_.passed(octets);
        out.append(octets);
    } else {
        impl_->stuffer_.append(out, octets);
    }
}

void ClientSession::body_passed(std::string_view octets) {
    if (impl_->stage_ == Impl::Stage::over) return;
    CHECK_INVARIANT(body_unchanged());
    impl_->count_body(octets);
    impl_->stuffer_.passed(octets);
}

void ClientSession::body_end(std::string& out) {
    if (impl_->stage_ == Impl::Stage::over) return;
    CHECK_INVARIANT(impl_->body_wanted_ && impl_->body_left_ == 0);
    impl_->body_wanted_ = false;
    if (!impl_->chunked_) {
        impl_->stuffer_.finish(out);
        impl_->awaited_.push(Impl::Awaited::end_of_data);
    }
    impl_->pump(out);       // BDAT may have been refused already
    impl_->announce_ready();
}

bool ClientSession::body_unchanged() const { return impl_->chunked_ || !impl_->message_.dot_line; }

void ClientSession::quit(std::string& out) {
    CHECK_INVARIANT(ready());
    impl_->stage_ = Impl::Stage::quitting;
    impl_->ready_due_ = false;
    impl_->awaited_.push(Impl::Awaited::quit);
    out += "QUIT\r\n";
}

void ClientSession::connection_lost(std::string_view why) {
    if (impl_->stage_ == Impl::Stage::over) return;
    impl_->end_session(Outcome::deferred, {0, {}, why});
}

bool ClientSession::ready() const { return impl_->stage_ == Impl::Stage::idle; }
bool ClientSession::busy() const { return impl_->stage_ == Impl::Stage::sending; }

Duration ClientSession::timeout() const {
    if (impl_->body_wanted_) return body_block_wait;
    if (impl_->stage_ == Impl::Stage::over || impl_->awaited_.empty()) return {};
    return impl_->rule().wait;
}

}  // namespace postern::proto
