// ClientSession: the sending side of SMTP and LMTP (RFC 5321, RFC 2033) as a pure machine.
//
// One connection, many messages.  The owner connects, feeds replies, sends what `out` holds after each call, and gives the
// body when asked.  Pipelines MAIL, RCPT and DATA (or BDAT with the whole body) where the next hop offers it.
// Every recipient of a message gets exactly one outcome: 2xx delivered, 4xx and lost connections deferred, 5xx failed; 552
// at RCPT counts as 452 (§4.5.3.1.10); an unknown code by its first digit (§4.3.2).
//
// What cannot be sent to this next hop (SIZE, SMTPUTF8, 8BITMIME, BINARYMIME) fails without asking, with the reply that a
// server would have given.  A reply that no command asked for, or with a wrong first digit, ends the session: deferred.
//
// Threads: the owner's.  Waits are limited by the owner with timeout().  From within an event only send(), quit() and the
// questions may be called, and those only from on_ready(); the session may not be destroyed there.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "proto/envelope.hpp"
#include "proto/reply_parser.hpp"
#include "ring/base/units.hpp"

namespace postern::proto {

struct ClientSettings {
    std::string hostname;               // for EHLO
    bool lmtp = false;
    bool pipelining = true;             // used when offered
    bool chunking = true;               // used when offered
};

struct OutgoingMessage {
    std::string_view sender;
    std::span<const std::string_view> recipients;   // valid until on_message_done()
    uint64_t bytes = 0;                 // of the unstuffed body
    BodyType body = BodyType::seven_bit;
    bool smtputf8 = false;              // an address is not ASCII or the header may not be: needs SMTPUTF8
    bool eight_bit = false;             // octets above 127 were seen
    bool dot_line = true;               // false: no line begins with '.', no stuffing scan needed
    bool ends_with_crlf = true;
};

enum class Outcome : uint8_t { delivered, deferred, failed };

class ClientEvents {
public:
    virtual void on_ready() = 0;        // after EHLO, and after each message: send() may be called (also from here)
    // The body is wanted now: body() any number of times, message.bytes in all, then body_end().  Not from within this
    // call.  Even if all recipients get their outcome meanwhile: BDAT's octets are announced and must follow.
    virtual void on_body_wanted() = 0;
    // `reply` is what decided it, valid during the call; its code is 0 when the connection failed, text then says how.
    virtual void on_recipient_done(size_t recipient, Outcome outcome, const RemoteReply& reply) = 0;
    virtual void on_message_done() = 0; // all recipients have their outcome; no body is wanted (any more)
    // The session is over, by our QUIT or by a failure; all outcomes have been given.  The owner closes.  `reply` is the
    // reason when it is not our QUIT.  `refused` means: the next hop did not serve us at all (it did not get past greeting
    // and EHLO, whatever the reason).  Everything is ignored from now on, a body under way included.
    virtual void on_session_over(bool refused, const RemoteReply& reply) = 0;

protected:
    ~ClientEvents() = default;
};

class ClientSession {
public:
    ClientSession(const ClientSettings& settings, ClientEvents& events);
    ~ClientSession();
    ClientSession(const ClientSession&) = delete;

    void feed(std::string_view octets, std::string& out);       // replies; consumes everything
    void send(const OutgoingMessage& message, std::string& out);// only when ready()
    void body(std::string_view octets, std::string& out);       // stuffed where needed, appended to `out`
    void body_end(std::string& out);
    // With BDAT, and with dot_line false, body octets go out unchanged: the owner may send them itself, uncopied, and then
    // calls body_passed(octets) instead of body().  False: use body().
    bool body_unchanged() const;
    void body_passed(std::string_view octets);
    void quit(std::string& out);                                // when idle
    void connection_lost(std::string_view why);                 // by the peer, or a deadline: outcomes, then on_session_over

    bool ready() const;                 // idle, a message may be sent
    bool busy() const;                  // a message is being sent
    // How long the present wait may last (§4.5.3.2): greeting 5 min, EHLO 5, RSET 5, MAIL 5, RCPT 5, DATA 2, body block 3,
    // end of data 10, QUIT 5 s.  Zero when nothing is awaited: idle or over.
    Duration timeout() const;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

// Dot-stuffing of one message, streaming: the only code that writes message data for DATA (P3, output side).
// Appends to `out` with every leading dot doubled; finish() adds the missing CRLF, if any, and the terminator.  A line ends
// in CRLF and nothing else; messages with bare CR or LF do not get here: the framer refused or repaired them on the way
// in, and BINARYMIME goes out by BDAT only.
class DotStuffer {
public:
    void begin();
    void append(std::string& out, std::string_view octets);
    void passed(std::string_view octets);       // known to have no leading dot: keeps track only
    void finish(std::string& out);

private:
    uint8_t state_ = 0;
};

}  // namespace postern::proto
