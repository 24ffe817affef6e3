// ServerSession: the receiving side of SMTP (RFC 5321) as a pure machine: octets in, events and replies out.
//
// The owner feeds it what arrives, in place; it answers into `out`; it asks the owner for every judgement that needs the
// world (policy, spool).  Exactly one reply per command, in order.  A judgement may be given at once or later: while one is
// pending feed() consumes nothing, and verdict() goes on.  Each transaction has a generation, so that a late verdict of
// a finished one changes nothing.
//
// Threads: the owner's.  Allocates nothing per command in the steady state; an idle session holds no more than itself and
// its HELO name.  Never prints, never aborts on input.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "proto/address.hpp"
#include "proto/envelope.hpp"
#include "proto/framer.hpp"
#include "proto/reply.hpp"

namespace postern::proto {

// Settings of a listener; shared by its sessions, outlives them.
struct ServerSettings {
    std::string hostname;
    uint64_t message_bytes_max = 50u << 20;
    uint32_t recipients_max = 1000;             // 452 4.5.3 beyond
    uint32_t command_line_bytes_max = 4096;     // with CRLF; 500 5.5.2 beyond
    uint32_t errors_max = 20;                   // 4xx and 5xx replies to commands before 421 4.7.0
    uint32_t junk_commands_max = 100;           // NOOP, RSET, VRFY, HELP, empty transactions ... since the last message
    uint32_t header_bytes_max = 1u << 20;       // 552 5.3.4 beyond
    uint32_t hops_max = 100;                    // Received fields; 554 5.4.6 beyond
    BareNewline bare_newline = BareNewline::reject;
    bool pipelining = true;
    bool chunking = true;
    bool smtputf8 = true;
};

enum class Verb : uint8_t { helo, ehlo, mail, rcpt, data, bdat, rset, noop, vrfy, expn, help, quit, starttls, auth, lhlo, http, unknown };
constexpr size_t verb_count = 17;
std::string_view verb_name(Verb verb);          // lower case, for metrics and logs

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
    // DATA or the first BDAT: storage is opened here; a refusal is answered instead of the 354 (or swallows the chunk).
    virtual Verdict on_data_start(const Envelope& envelope) = 0;
    // The whole message has been given through on_data() and is acceptable to the protocol.  Usually pending: the owner
    // commits and calls verdict().
    virtual Verdict on_data_end(const Envelope& envelope, const DataFacts& facts) = 0;
    // The transaction ends without a commit having been asked for (refused, reset, closed): drop what was stored of it.
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
    // The input ended: an open transaction is abandoned.
    void end_of_input();

    bool closing() const;                                       // the owner flushes and closes
    bool in_data() const;                                       // inside DATA or a BDAT chunk: the data deadline applies
    bool in_transaction() const;                                // MAIL accepted, not yet answered for
    const Envelope& envelope() const;                           // of the present transaction; empty outside one
    std::string_view helo() const;                              // sanitised; "" before HELO
    bool esmtp() const;

private:
    struct Impl;        // or plain members: the implementer's choice; small when idle
    std::unique_ptr<Impl> impl_;
};

}  // namespace postern::proto
