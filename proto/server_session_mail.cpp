// ServerSession: MAIL and RCPT.
#include "proto/server_commands.hpp"

namespace postern::proto {

Reply check_mail(const CheckContext& context, CommandArguments& arguments) {
    return parse_mail(arguments.text, context.settings, arguments.mail);
}

Reply check_rcpt(const CheckContext& context, CommandArguments& arguments) {
    const Transaction& transaction = *context.transaction;
    const Reply refusal = parse_recipient(arguments.text, transaction.envelope.smtputf8, arguments.recipient);
    if (refusal.code != 0) return refusal;
    // The accepted ones still get their mail; the client sends the rest in another transaction (RFC 5321 §4.5.3.1.10).
    if (transaction.accepted >= context.settings.recipients_max) return {452, "4.5.3", "Too many recipients"};
    return {};
}

void ServerSession::proceed_mail(const Arguments& arguments, std::string& out) {
    if (!transaction_) transaction_ = std::make_unique<Transaction>();
    Transaction& transaction = *transaction_;
    append_canonical(transaction.candidate, arguments.mail.sender);
    transaction.envelope.set_sender(transaction.candidate);
    transaction.envelope.declared_bytes = arguments.mail.declared_bytes;
    transaction.envelope.body = arguments.mail.body;
    transaction.envelope.smtputf8 = arguments.mail.smtputf8;
    transaction.owner_waits = true;
    settle(Question::mail, events_.on_mail(transaction.envelope), out);
}

void ServerSession::answer_mail(const Reply& reply, std::string& out) {
    if (reply.code >= 400) {
        transaction_->owner_waits = false;
        count_error(Stage::mail, reply, transaction_->candidate, out);
        reset_transaction();
        return;
    }
    transaction_->open = true;
    say_accept(Stage::mail, reply, {250, "2.1.0", "Sender OK"}, out);
}

void ServerSession::proceed_rcpt(const Arguments& arguments, std::string& out) {
    transaction_->candidate.clear();
    append_canonical(transaction_->candidate, arguments.recipient);
    settle(Question::recipient, events_.on_recipient(arguments.recipient, transaction_->candidate), out);
}

void ServerSession::answer_recipient(const Reply& reply, std::string& out) {
    if (reply.code >= 400) {
        ++transaction_->refused;
        count_error(Stage::rcpt, reply, transaction_->candidate, out);
        return;
    }
    // Named twice, answered twice, delivered once.
    if (transaction_->envelope.find_recipient(transaction_->candidate) < 0)
        transaction_->envelope.add_recipient(transaction_->candidate);
    ++transaction_->accepted;
    say_accept(Stage::rcpt, reply, {250, "2.1.5", "Recipient OK"}, out);
}

}  // namespace postern::proto
