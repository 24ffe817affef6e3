// ServerSession: the receiving side of SMTP (RFC 5321) as a pure machine: octets in, events and replies out.
//
// The owner feeds it what arrives, in place; it answers into `out`; it asks the owner for every judgement that needs the
// world (policy, spool).  Exactly one reply per command, in order.  A judgement may be given at once or later: while one is
// pending feed() consumes nothing, and verdict() goes on.  Each transaction has a generation, so that a late verdict of
// a finished one changes nothing.
//
// Threads: the owner's.  Allocates nothing per command in the steady state; an idle session holds no more than itself and
// its HELO name, and after its first mail a small transaction for the next one.  Never prints, never aborts on input.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "proto/address.hpp"
#include "proto/command.hpp"
#include "proto/envelope.hpp"
#include "proto/framer.hpp"
#include "proto/reply.hpp"

namespace postern::proto {

struct Transaction;
struct CommandArguments;

// Settings of a listener; shared by its sessions, outlives them.
struct ServerSettings {
    std::string hostname;
    uint64_t message_bytes_max = 50u << 20;
    uint32_t recipients_max = 1000;             // 452 4.5.3 beyond
    uint32_t command_line_bytes_max = 4096;     // with CRLF; 500 5.5.2 beyond
    uint32_t errors_max = 20;                   // 4xx and 5xx replies since the last message; the next one is 421 4.7.0
    uint32_t junk_commands_max = 100;           // NOOP RSET VRFY HELP, repeated HELO, since the last message; likewise
    uint32_t header_bytes_max = 1u << 20;       // 552 5.3.4 beyond
    uint32_t hops_max = 100;                    // Received fields; 554 5.4.6 beyond
    BareNewline bare_newline = BareNewline::reject;
    bool pipelining = true;
    bool chunking = true;
    bool smtputf8 = true;
};

// Where a reply was given, for metrics and logs.
enum class Stage : uint8_t { connect, helo, mail, rcpt, data, end_of_data, other };
constexpr size_t stage_count = 7;
std::string_view stage_name(Stage stage);

// A judgement of the owner.
struct Verdict {
    enum class Kind : uint8_t { accept, refuse, pending } kind = Kind::accept;
    Reply reply;                                // refuse; accept with the default text when code is 0
    static Verdict accept() { return {}; }
    static Verdict accept(Reply reply) { return {Kind::accept, reply}; }
    static Verdict refuse(Reply reply) { return {Kind::refuse, reply}; }
    static Verdict pending() { return {Kind::pending, {}}; }
};

// What the owner is asked and told.  Views are valid during the call, but on_data() slices until feed() returns.
class ServerEvents : public DataSink {
public:
    // MAIL: the envelope has sender, SIZE, BODY and SMTPUTF8 already.
    virtual Verdict on_mail(const Envelope& envelope) = 0;
    // RCPT: not yet in the envelope.  `canonical` is what will be added.
    virtual Verdict on_recipient(const Mailbox& mailbox, std::string_view canonical) = 0;
    // DATA or the first BDAT: storage is opened here; a refusal is answered instead of the 354 (or after the chunk, which
    // is swallowed).  After a refused DATA the transaction stays: the client may try DATA again, or RSET.
    virtual Verdict on_data_start(const Envelope& envelope) = 0;
    // The whole message has been given through on_data() and is acceptable to the protocol.  Usually pending: the owner
    // commits and calls verdict().
    virtual Verdict on_data_end(const Envelope& envelope, const DataFacts& facts) = 0;
    // The transaction ends, or is certain to be refused at its end, without on_data_end() having been asked: drop what was
    // stored of it.  Once at most for each on_mail() that was not refused, never after on_data_end(), and no slice follows.
    virtual void on_abandoned() = 0;
    // Bookkeeping.  on_refused: every 4xx and 5xx, with what it was about (may be empty), already sanitised.
    virtual void on_command(Verb verb) = 0;
    virtual void on_reply(Stage stage, uint16_t code) = 0;
    virtual void on_refused(Stage stage, const Reply& reply, std::string_view about) = 0;

protected:
    ~ServerEvents() = default;
};

class ServerSession {
public:
    ServerSession(const ServerSettings& settings, ServerEvents& events);
    ~ServerSession();
    ServerSession(const ServerSession&) = delete;

    void greet(std::string& out);                               // 220
    void refuse_service(const Reply& reply, std::string& out);  // a 421 or 554 banner; then closing() or QUIT only (RFC 7504)

    // Consumes octets until they are used up, a verdict is pending, the session closes, or the turn's budget of commands
    // (200) is spent; returns how many.  Replies are appended to `out`.
    size_t feed(std::string_view octets, std::string& out);
    bool waiting() const;                                       // a verdict is pending
    uint32_t generation() const;                                // of the present transaction
    void verdict(uint32_t generation, const Reply& reply, std::string& out);    // ignored when it is not the pending one

    // The command or data deadline has passed: 421 4.4.2.  The owner closes after flushing.
    void time_out(std::string& out);
    // Drain: says 421 4.3.2 at once between commands, or after the reply to the data in progress.
    void shut_down(std::string& out);
    // The input ended, and all of it was fed: an open transaction is abandoned.  A pending on_data_end() may still be
    // answered (the peer may have closed only its half); then, or else at once, closing().
    void end_of_input();

    bool closing() const;                                       // the owner flushes and closes
    bool in_data() const;                                       // inside DATA or a BDAT chunk: the data deadline applies
    bool in_transaction() const;                                // MAIL accepted, not yet answered for
    const Envelope& envelope() const;                           // of the present transaction; empty outside one
    std::string_view helo() const;                              // sanitised; "" before HELO
    bool esmtp() const;

private:
    using Arguments = CommandArguments;
    struct CommandRule;                 // proto/server_commands.hpp
    static const CommandRule rules[verb_count];

    enum class Reading : uint8_t { commands, data, chunk };
    enum class Question : uint8_t { none, mail, recipient, data_start, chunk_start, data_end };
    class MessageSink;

    uint8_t phase() const;              // a bit of CommandRule::legal
    Reply out_of_order(Verb verb) const;

    // server_session.cpp: lines, the table, replies, judgements
    size_t feed_command(std::string_view octets, std::string& out);
    void keep_partial_line(std::string_view octets);
    void run_command(std::string_view line, std::string& out);
    void refuse_command(const CommandRule& rule, const Reply& refusal, std::string_view about, std::string& out);
    void say(Stage stage, const Reply& reply, std::string& out);
    void say_refusal(Stage stage, const Reply& refusal, std::string_view about, std::string& out);
    void say_accept(Stage stage, const Reply& given, const Reply& standard, std::string& out);
    void count_error(Stage stage, const Reply& refusal, std::string_view about, std::string& out);
    void say_last(Stage stage, const Reply& reply, std::string& out);
    void settle(Question question, const Verdict& verdict, std::string& out);
    void answer(Question question, const Reply& reply, std::string& out);
    void reset_transaction();
    void say_goodbye_when_draining(std::string& out);

    // server_session_greeting.cpp
    void proceed_helo(const Arguments& arguments, std::string& out);
    void proceed_ehlo(const Arguments& arguments, std::string& out);
    void begin_greeted(std::string_view name, bool esmtp);
    void proceed_rset(const Arguments& arguments, std::string& out);
    void proceed_noop(const Arguments& arguments, std::string& out);
    void proceed_vrfy(const Arguments& arguments, std::string& out);
    void proceed_help(const Arguments& arguments, std::string& out);
    void proceed_quit(const Arguments& arguments, std::string& out);

    // server_session_mail.cpp
    void proceed_mail(const Arguments& arguments, std::string& out);
    void proceed_rcpt(const Arguments& arguments, std::string& out);
    void answer_mail(const Reply& reply, std::string& out);
    void answer_recipient(const Reply& reply, std::string& out);

    // server_session_data.cpp
    void proceed_data(const Arguments& arguments, std::string& out);
    void proceed_bdat(const Arguments& arguments, std::string& out);
    void answer_data_start(const Reply& reply, std::string& out);
    void answer_chunk_start(const Reply& reply, std::string& out);
    void answer_data_end(const Reply& reply, std::string& out);
    size_t feed_data(std::string_view octets, std::string& out);
    size_t feed_chunk(std::string_view octets, std::string& out);
    Reply judge_chunk() const;
    Reply judge_message() const;
    void start_chunk(std::string& out);
    void end_chunk(std::string& out);
    void end_message(std::string& out);
    void abandon();
    uint64_t discard_bytes_max() const;

    const ServerSettings& settings_;
    ServerEvents& events_;
    std::string carry_;                 // a line that has not ended yet
    std::string helo_;
    std::unique_ptr<Transaction> transaction_;      // null until the first MAIL, then kept for the next while it is small
    DataFramer framer_;
    Reply chunk_refusal_;               // what the present chunk will be answered with; code 0: not refused
    uint64_t chunk_bytes_ = 0;          // announced for the present chunk
    uint64_t discarded_bytes_ = 0;      // in refused chunks, since the last accepted message
    uint64_t data_bytes_ = 0;           // read in the present DATA, before unstuffing
    uint32_t generation_ = 1;
    uint32_t errors_ = 0;
    uint32_t junk_commands_ = 0;
    Reading reading_ = Reading::commands;
    Question question_ = Question::none;
    bool esmtp_ = false;
    bool closing_ = false;
    bool draining_ = false;
    bool input_ended_ = false;
    bool service_refused_ = false;
    bool chunk_last_ = false;
    bool line_too_long_ = false;        // the rest of the line is being dropped
    bool line_cr_ = false;              // its last octet was CR
};

}  // namespace postern::proto
