// One message on a connection: MAIL to its last outcome.  client_session_impl.hpp has the picture.
#include "proto/client_session_impl.hpp"

namespace postern::proto {

namespace {

constexpr uint64_t early_body_bytes_max = 64_KiB;   // BDAT with a body up to this is sent ahead of the RCPT replies

// An address with a control octet would end our command line and begin another: it is never written.
bool writable(std::string_view address) {
    for (const char c : address) {
        if (static_cast<uint8_t>(c) < 0x20 || c == 0x7F) return false;
    }
    return true;
}

}  // namespace

void ClientSession::Impl::begin(const OutgoingMessage& message) {
    message_ = message;
    stage_ = Stage::sending;
    step_ = reset_needed_ ? Step::reset : Step::mail;
    recipients_.assign(message.recipients.size(), Recipient::unasked);
    undecided_ = recipients_.size();
    next_recipient_ = 0;
    next_answer_ = 0;
    next_verdict_ = 0;
    body_left_ = 0;
    chunked_ = settings_.chunking && offered_.chunking;
    if (const auto why = unfit()) return decide_all(Outcome::failed, *why);
    for (size_t i = 0; i < recipients_.size(); ++i) {
        if (!writable(message.recipients[i])) {
            decide(i, Outcome::failed, {553, "5.1.3", "control character in the recipient's address"});
        }
    }
}

// Why the message cannot be handed to this next hop, known without asking.
std::optional<RemoteReply> ClientSession::Impl::unfit() const {
    if (!writable(message_.sender)) return RemoteReply{553, "5.1.7", "control character in the sender's address"};
    if (message_.smtputf8 && !offered_.smtputf8) {
        return RemoteReply{553, "5.6.7", "the message needs SMTPUTF8, which the next hop does not offer"};
    }
    if (message_.body == BodyType::binary_mime && !(chunked_ && offered_.binary_mime)) {
        return RemoteReply{554, "5.6.3", "the message needs BINARYMIME and CHUNKING, which the next hop does not offer"};
    }
    if (message_.body == BodyType::eight_bit_mime && message_.eight_bit && !offered_.eight_bit_mime) {
        return RemoteReply{554, "5.6.3", "the message needs 8BITMIME, which the next hop does not offer"};
    }
    if (offered_.bytes_max != 0 && wire_bytes() > offered_.bytes_max) {
        return RemoteReply{552, "5.3.4", "the message is larger than the SIZE that the next hop offers"};
    }
    return std::nullopt;
}

void ClientSession::Impl::pump(std::string& out) {
    while (stage_ == Stage::sending && awaited_.size() < (pipelining() ? AwaitedQueue::size_max : 1)) {
        if (undecided_ == 0) step_ = Step::settle;
        switch (step_) {
            case Step::reset:
                out += "RSET\r\n";
                awaited_.push(Awaited::reset);
                step_ = Step::mail;
                break;
            case Step::mail:
                write_mail(out);
                step_ = Step::rcpt;
                break;
            case Step::rcpt:
                write_next_recipient(out);
                break;
            case Step::content:
                if (!awaited_.empty() && chunked_ && message_.bytes > early_body_bytes_max) return;
                write_content(out);
                step_ = Step::settle;
                break;
            case Step::settle:
                if (!awaited_.empty() || body_wanted_) return;
                events_.on_message_done();
                become_ready();
                break;
        }
    }
}

void ClientSession::Impl::write_mail(std::string& out) {
    out.append("MAIL FROM:<").append(message_.sender).append(">");
    if (offered_.size) {
        out += " SIZE=";
        append_number(out, wire_bytes());
    }
    if (message_.body == BodyType::binary_mime) {
        out += " BODY=BINARYMIME";
    } else if (offered_.eight_bit_mime && (message_.eight_bit || message_.body == BodyType::eight_bit_mime)) {
        out += " BODY=8BITMIME";
    }
    if (message_.smtputf8) out += " SMTPUTF8";
    out += "\r\n";
    awaited_.push(Awaited::mail);
}

void ClientSession::Impl::write_next_recipient(std::string& out) {
    while (next_recipient_ < recipients_.size() && recipients_[next_recipient_] != Recipient::unasked) ++next_recipient_;
    if (next_recipient_ == recipients_.size()) {
        step_ = Step::content;
        return;
    }
    out.append("RCPT TO:<").append(message_.recipients[next_recipient_]).append(">\r\n");
    recipients_[next_recipient_++] = Recipient::asked;
    awaited_.push(Awaited::rcpt);
}

void ClientSession::Impl::write_content(std::string& out) {
    if (!chunked_) {
        out += "DATA\r\n";
        awaited_.push(Awaited::data);
        return;
    }
    out += "BDAT ";
    append_number(out, message_.bytes);
    out += " LAST\r\n";
    awaited_.push(Awaited::bdat);
    want_body();
}

void ClientSession::Impl::want_body() {
    body_wanted_ = true;
    body_left_ = message_.bytes;
    stuffer_.begin();
    events_.on_body_wanted();
}

void ClientSession::Impl::count_body(std::string_view octets) {
    CHECK_INVARIANT(body_wanted_ && octets.size() <= body_left_);
    body_left_ -= octets.size();
}

void ClientSession::Impl::reset_answered(const RemoteReply& reply, std::string&) {
    if (refusal(reply)) return out_of_step("RSET", reply);
    reset_needed_ = false;
}

void ClientSession::Impl::mail_answered(const RemoteReply& reply, std::string&) {
    if (refusal(reply)) return decide_all(outcome_of(reply), reply);
    reset_needed_ = true;
}

void ClientSession::Impl::rcpt_answered(const RemoteReply& reply, std::string&) {
    if (undecided_ == 0) return;        // MAIL was refused
    while (recipients_[next_answer_] != Recipient::asked) ++next_answer_;
    if (!refusal(reply)) {
        recipients_[next_answer_] = Recipient::accepted;
    } else {
        // RFC 5321 §4.5.3.1.10: some servers say 552 for too many recipients
        decide(next_answer_, reply.code == 552 ? Outcome::deferred : outcome_of(reply), reply);
    }
    ++next_answer_;
}

void ClientSession::Impl::data_answered(const RemoteReply& reply, std::string& out) {
    if (refusal(reply)) return decide_all(outcome_of(reply), reply);
    if (undecided_ > 0) return want_body();
    // It goes ahead although it refused every recipient (RFC 2920 §3.1).  In LMTP nobody is left to answer for the dot.
    if (settings_.lmtp) return out_of_step("DATA without a recipient", reply);
    out += ".\r\n";
    awaited_.push(Awaited::end_of_data);
}

void ClientSession::Impl::content_answered(const RemoteReply& reply, std::string&) {
    if (body_left_ > 0 && !refusal(reply)) return out_of_step("BDAT before its last octet", reply);
    // After the dot the transaction is over.  It may not be where BDAT is refused (indeterminate, RFC 3030 §2), or the
    // empty message that follows a needless 354.
    reset_needed_ = refusal(reply) && (chunked_ || undecided_ == 0);
    if (!settings_.lmtp) return decide_all(outcome_of(reply), reply);
    if (undecided_ == 0) return;        // BDAT without a recipient: one reply
    while (recipients_[next_verdict_] != Recipient::accepted) ++next_verdict_;
    decide(next_verdict_, outcome_of(reply), reply);
    if (undecided_ > 0) awaited_.push(chunked_ ? Awaited::bdat : Awaited::end_of_data);
}

}  // namespace postern::proto
