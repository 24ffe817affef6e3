// ServerSession: lines, the command table, replies and judgements.  The verbs are in server_session_*.cpp.
#include "proto/server_session.hpp"

#include <algorithm>
#include <utility>

#include "proto/server_commands.hpp"
#include "ring/base/check.hpp"

namespace postern::proto {

namespace {

constexpr unsigned commands_per_feed_max = 200;
constexpr size_t transaction_bytes_kept = 1024;     // of heap, for the next mail of an idle session
constexpr uint32_t recipient_overshoot_max =
    1000;  // 452 4.5.3 replies that are not errors (a client may pipeline that far)
constexpr size_t about_bytes_max = 256;

constexpr std::string_view stage_names[stage_count] = {"connect", "helo",        "mail", "rcpt",
                                                       "data",    "end_of_data", "other"};

constexpr Reply local_trouble{451, "4.3.0", "Local error, try again later"};

// Phases of a session, as bits of CommandRule::legal.
constexpr uint8_t connected = 1, ready = 2, mail = 4, recipients = 8, chunks = 16;
constexpr uint8_t anywhere = connected | ready | mail | recipients | chunks;

}  // namespace

std::string_view stage_name(Stage stage) { return stage_names[static_cast<size_t>(stage)]; }

// In the order of Verb.
const ServerSession::CommandRule ServerSession::rules[verb_count] = {
    {Verb::helo, Stage::helo, anywhere, false, check_helo, &ServerSession::proceed_helo},
    {Verb::ehlo, Stage::helo, anywhere, false, check_helo, &ServerSession::proceed_ehlo},
    {Verb::mail, Stage::mail, ready, false, check_mail, &ServerSession::proceed_mail},
    {Verb::rcpt, Stage::rcpt, mail | recipients, false, check_rcpt, &ServerSession::proceed_rcpt},
    {Verb::data, Stage::data, recipients, false, check_data, &ServerSession::proceed_data},
    {Verb::bdat, Stage::data, anywhere, false, check_bdat, &ServerSession::proceed_bdat},
    {Verb::rset, Stage::other, anywhere, true, check_no_argument, &ServerSession::proceed_rset},
    {Verb::noop, Stage::other, anywhere, true, check_anything, &ServerSession::proceed_noop},
    {Verb::vrfy, Stage::other, anywhere, true, check_vrfy, &ServerSession::proceed_vrfy},
    {Verb::expn, Stage::other, anywhere, false, check_not_offered, nullptr},
    {Verb::help, Stage::other, anywhere, true, check_anything, &ServerSession::proceed_help},
    {Verb::quit, Stage::other, anywhere, false, check_anything, &ServerSession::proceed_quit},
    {Verb::starttls, Stage::other, anywhere, false, check_not_offered, nullptr},
    {Verb::auth, Stage::other, anywhere, false, check_not_offered, nullptr},
    {Verb::lhlo, Stage::helo, anywhere, false, check_lhlo, nullptr},
    {Verb::http, Stage::other, anywhere, false, check_http, nullptr},
    {Verb::unknown, Stage::other, anywhere, false, check_unknown, nullptr},
};

ServerSession::ServerSession(const ServerSettings& settings, ServerEvents& events)
    : settings_(settings), events_(events) {}
ServerSession::~ServerSession() = default;

bool ServerSession::waiting() const { return question_ != Question::none; }
uint32_t ServerSession::generation() const { return generation_; }
bool ServerSession::closing() const { return closing_; }
bool ServerSession::in_data() const { return reading_ != Reading::commands; }
bool ServerSession::in_transaction() const { return transaction_ && transaction_->open; }
std::string_view ServerSession::helo() const { return helo_; }
bool ServerSession::esmtp() const { return esmtp_; }
const Envelope& ServerSession::envelope() const {
    static const Envelope none;
    return transaction_ ? transaction_->envelope : none;
}

uint8_t ServerSession::phase() const {
    if (helo_.empty()) return connected;
    if (!in_transaction()) return ready;
    if (transaction_->chunking) return chunks;
    return transaction_->accepted ? recipients : mail;
}

Reply ServerSession::out_of_order(Verb verb) const {
    const uint8_t now = phase();
    if (now == connected) return {503, "5.5.1", "Say EHLO first"};
    if (verb == Verb::mail) return {503, "5.5.1", "A transaction is open already"};
    if (now == ready) return {503, "5.5.1", "MAIL first"};
    if (now == chunks) return {503, "5.5.1", "BDAT is in progress"};
    if (transaction_->refused) return {554, "5.5.1", "No valid recipients"};
    return {503, "5.5.1", "RCPT first"};
}

size_t ServerSession::feed(std::string_view octets, std::string& out) {
    size_t used = 0;
    unsigned commands = 0;
    while (used < octets.size() && !closing_ && !waiting()) {
        const std::string_view rest = octets.substr(used);
        switch (reading_) {
            case Reading::data: used += feed_data(rest, out); break;
            case Reading::chunk: used += feed_chunk(rest, out); break;
            case Reading::commands:
                if (commands++ == commands_per_feed_max) return used;
                used += feed_command(rest, out);
                break;
        }
        say_goodbye_when_draining(out);
    }
    return used;
}

// One line, or all of a part of one.  Only CRLF ends a line; a CR or LF elsewhere stays in it, and run_command()
// refuses.
size_t ServerSession::feed_command(std::string_view octets, std::string& out) {
    size_t lf = octets.find('\n');
    while (lf != std::string_view::npos && !(lf == 0 ? line_cr_ : octets[lf - 1] == '\r'))
        lf = octets.find('\n', lf + 1);
    if (lf == std::string_view::npos) {
        keep_partial_line(octets);
        return octets.size();
    }
    const size_t taken = lf + 1;
    const bool too_long = line_too_long_ || carry_.size() + taken > settings_.command_line_bytes_max;
    std::string carried;                    // freed with the line
    carried.swap(carry_);
    line_too_long_ = line_cr_ = false;
    if (too_long) {
        events_.on_command(Verb::unknown);
        count_error(Stage::other, {500, "5.5.2", "Line too long"}, {}, out);
    } else if (carried.empty()) {
        run_command(octets.substr(0, taken - 2), out);
    } else {
        carried.append(octets.substr(0, taken));
        run_command(std::string_view(carried).substr(0, carried.size() - 2), out);
    }
    return taken;
}

void ServerSession::keep_partial_line(std::string_view octets) {
    line_cr_ = octets.back() == '\r';
    if (line_too_long_) return;
    if (carry_.size() + octets.size() >= settings_.command_line_bytes_max) {
        line_too_long_ = true;
        std::string().swap(carry_);         // an assignment would keep the capacity
    } else {
        carry_.append(octets);
    }
}

void ServerSession::run_command(std::string_view line, std::string& out) {
    const CommandLine command = parse_command(line);
    const CommandRule& rule = rules[static_cast<size_t>(command.verb)];
    CHECK_INVARIANT(rule.verb == command.verb);
    events_.on_command(command.verb);

    if (service_refused_ && command.verb != Verb::quit)
        return refuse_command(rule, {503, "5.5.1", "No service here, only QUIT"}, {}, out);
    if (command.fault != LineFault::none && command.verb == Verb::bdat)
        return refuse_command(rule, malformed_chunk, {}, out);
    if (command.fault == LineFault::bare_newline)
        return refuse_command(rule, {500, "5.5.2", "Bare CR or LF in a command"}, {}, out);
    if (command.fault == LineFault::control && command.verb != Verb::unknown)
        return refuse_command(rule, {501, "5.5.2", "Control character in a command"}, {}, out);
    if ((rule.legal & phase()) == 0) return refuse_command(rule, out_of_order(command.verb), command.argument, out);

    CommandArguments arguments;
    arguments.text = command.argument;
    const CheckContext context{settings_, in_transaction() ? transaction_.get() : nullptr};
    const Reply refusal = rule.check(context, arguments);
    if (refusal.code != 0) return refuse_command(rule, refusal, command.argument, out);
    const bool repeated_greeting = rule.stage == Stage::helo && !helo_.empty();
    if ((rule.junk || repeated_greeting) && ++junk_commands_ > settings_.junk_commands_max)
        return say_last(rule.stage, {421, "4.7.0", "Too many commands without mail"}, out);
    (this->*rule.proceed)(arguments, out);
}

void ServerSession::refuse_command(const CommandRule& rule, const Reply& refusal, std::string_view about,
                                   std::string& out) {
    // 421 ends the session; so does a BDAT whose length is unknown, for what follows cannot be told from commands.
    if (refusal.code == 421 || refusal.code == malformed_chunk.code) return say_last(rule.stage, refusal, out);
    char clean[about_bytes_max];
    about = about.substr(0, sizeof clean);
    std::transform(about.begin(), about.end(), clean, [](char octet) {
        const auto value = static_cast<unsigned char>(octet);
        return value < 0x20 || value > 0x7e ? '?' : octet;
    });
    about = std::string_view(clean, about.size());
    if (rule.verb == Verb::rcpt && in_transaction()) {
        const bool overshoot = refusal.code == 452 && transaction_->refused < recipient_overshoot_max;
        ++transaction_->refused;
        if (overshoot) return say_refusal(rule.stage, refusal, about, out);
    }
    count_error(rule.stage, refusal, about, out);
}

void ServerSession::say(Stage stage, const Reply& reply, std::string& out) {
    write_reply(out, reply);
    events_.on_reply(stage, reply.code);
}

void ServerSession::say_refusal(Stage stage, const Reply& refusal, std::string_view about, std::string& out) {
    say(stage, refusal, out);
    events_.on_refused(stage, refusal, about);
}

void ServerSession::say_accept(Stage stage, const Reply& given, const Reply& standard, std::string& out) {
    say(stage, given.code == 0 ? standard : given, out);
}

// Past the limit the answer is 421 instead of the refusal: still one reply for the command.
void ServerSession::count_error(Stage stage, const Reply& refusal, std::string_view about, std::string& out) {
    if (refusal.code == 421) return say_last(stage, refusal, out);
    if (++errors_ > settings_.errors_max) return say_last(stage, {421, "4.7.0", "Too many errors"}, out);
    say_refusal(stage, refusal, about, out);
}

void ServerSession::say_last(Stage stage, const Reply& reply, std::string& out) {
    closing_ = true;
    say_refusal(stage, reply, {}, out);
    reset_transaction();
}

void ServerSession::settle(Question question, const Verdict& verdict, std::string& out) {
    switch (verdict.kind) {
        case Verdict::Kind::pending: question_ = question; return;
        case Verdict::Kind::accept: return answer(question, verdict.reply.code < 400 ? verdict.reply : Reply{}, out);
        case Verdict::Kind::refuse:
            return answer(question, verdict.reply.code < 400 ? local_trouble : verdict.reply, out);
    }
}

void ServerSession::answer(Question question, const Reply& reply, std::string& out) {
    switch (question) {
        case Question::none: return;
        case Question::mail: return answer_mail(reply, out);
        case Question::recipient: return answer_recipient(reply, out);
        case Question::data_start: return answer_data_start(reply, out);
        case Question::chunk_start: return answer_chunk_start(reply, out);
        case Question::data_end: return answer_data_end(reply, out);
    }
}

void ServerSession::verdict(uint32_t generation, const Reply& reply, std::string& out) {
    if (generation != generation_ || question_ == Question::none) return;
    const Question question = std::exchange(question_, Question::none);
    answer(question, reply, out);
    say_goodbye_when_draining(out);
    if (input_ended_) end_of_input();
}

// The one way out of a transaction, whatever ended it.  From here on its late verdicts are stale.
void ServerSession::reset_transaction() {
    abandon();
    if (transaction_) {
        transaction_->clear();
        if (transaction_->capacity() > transaction_bytes_kept) transaction_.reset();
    }
    chunk_refusal_ = Reply{};
    reading_ = Reading::commands;
    question_ = Question::none;
    ++generation_;
}

void ServerSession::abandon() {
    if (!transaction_ || !transaction_->owner_waits) return;
    transaction_->owner_waits = false;
    transaction_->storing = false;
    events_.on_abandoned();
}

void ServerSession::time_out(std::string& out) {
    if (!closing_) say_last(in_data() ? Stage::data : Stage::other, {421, "4.4.2", "Timeout"}, out);
}

void ServerSession::shut_down(std::string& out) {
    draining_ = true;
    say_goodbye_when_draining(out);
}

// Not while a command waits for its verdict or a message is on its way, be it between two chunks.
void ServerSession::say_goodbye_when_draining(std::string& out) {
    if (!draining_ || closing_ || waiting() || in_data()) return;
    if (in_transaction() && transaction_->chunking && !transaction_->failed) return;
    say_last(Stage::other, {421, "4.3.2", "Shutting down"}, out);
}

void ServerSession::end_of_input() {
    input_ended_ = true;
    if (question_ == Question::data_end) return;        // the commit goes on, and its reply is still wanted
    reset_transaction();
    closing_ = true;
}

}  // namespace postern::proto
