// The inside of ClientSession, shared by its two sources: the connection (client_session.cpp) and one message on it
// (client_message.cpp).
//
// How one message goes through the machine:
//
//   send() ─> [reset] ─> mail ─> rcpt … rcpt ─> content ─> settle ─> on_message_done(), on_ready()
//
// pump() takes these steps, as far ahead of the replies as the next hop allows: `awaited_` holds what is unanswered, in
// order, and each reply goes to the handler of its head.  Once no recipient is undecided no further step is taken; what is
// in flight then is answered and ignored (a 354 with an empty message), so that both sides are in step for the next one.
// Every recipient passes decide() once: that is where "exactly one outcome" is kept.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "proto/capabilities.hpp"
#include "proto/client_session.hpp"
#include "ring/base/check.hpp"

namespace postern::proto {

struct ClientSession::Impl {
    enum class Stage : uint8_t { opening, idle, sending, quitting, over };
    enum class Step : uint8_t { reset, mail, rcpt, content, settle };
    enum class Recipient : uint8_t { unasked, asked, accepted, decided };
    enum class Awaited : uint8_t { greeting, hello, helo, reset, mail, rcpt, data, bdat, end_of_data, quit };

    // Unanswered commands, in order.  So few that their replies fit any socket buffer: the two sides cannot be stuck
    // writing to each other (RFC 2920 §3.1).
    class AwaitedQueue {
    public:
        static constexpr size_t size_max = 100;
        bool empty() const { return count_ == 0; }
        size_t size() const { return count_; }
        Awaited front() const { return items_[first_]; }
        void push(Awaited item) {
            CHECK_INVARIANT(count_ < size_max);
            items_[(first_ + count_++) % size_max] = item;
        }
        void pop() {
            CHECK_INVARIANT(count_ > 0);
            first_ = (first_ + 1) % size_max;
            --count_;
        }

    private:
        std::array<Awaited, size_max> items_{};
        size_t first_ = 0;
        size_t count_ = 0;
    };

    Impl(const ClientSettings& settings, ClientEvents& events) : settings_(settings), events_(events) {
        awaited_.push(Awaited::greeting);
    }

    // What a reply answers: its name in error texts, the first digit that lets us go on (4 and 5 always refuse), how long
    // we wait for it (RFC 5321 §4.5.3.2), who takes it.
    struct Rule {
        std::string_view name;
        uint16_t positive_digit;
        Duration wait;
        void (Impl::*answered)(const RemoteReply& reply, std::string& out);
    };
    static const Rule rules[];
    const Rule& rule() const { return rules[static_cast<size_t>(awaited_.front())]; }

    static bool refusal(const RemoteReply& reply) { return reply.code >= 400; }
    static Outcome outcome_of(const RemoteReply& reply) {
        return reply.code < 400 ? Outcome::delivered : reply.code < 500 ? Outcome::deferred : Outcome::failed;
    }
    static void append_number(std::string& out, uint64_t number);

    // Replies.  A handler finds its command taken off `awaited_`, and a reply that is positive or a refusal.
    void take(const RemoteReply& reply, std::string& out);
    void take_unasked(const RemoteReply& reply);

    void greeting_answered(const RemoteReply& reply, std::string& out);
    void hello_answered(const RemoteReply& reply, std::string& out);
    void helo_answered(const RemoteReply& reply, std::string& out);
    void reset_answered(const RemoteReply& reply, std::string& out);
    void mail_answered(const RemoteReply& reply, std::string& out);
    void rcpt_answered(const RemoteReply& reply, std::string& out);
    void data_answered(const RemoteReply& reply, std::string& out);
    void content_answered(const RemoteReply& reply, std::string& out);
    void quit_answered(const RemoteReply& reply, std::string& out);

    // Commands.
    void begin(const OutgoingMessage& message);
    std::optional<RemoteReply> unfit() const;
    void pump(std::string& out);
    void write_mail(std::string& out);
    void write_next_recipient(std::string& out);
    void write_content(std::string& out);
    void want_body();
    void count_body(std::string_view octets);

    // Outcomes and the end.
    void decide(size_t recipient, Outcome outcome, const RemoteReply& reply);
    void decide_all(Outcome outcome, const RemoteReply& reply);
    void become_ready();
    void announce_ready();
    void end_session(Outcome outcome, const RemoteReply& reply);
    void out_of_step(std::string_view what, const RemoteReply& reply);

    uint64_t wire_bytes() const { return message_.bytes + (chunked_ || message_.ends_with_crlf ? 0 : 2); }
    bool pipelining() const { return settings_.pipelining && offered_.pipelining; }

    const ClientSettings settings_;
    ClientEvents& events_;
    ReplyParser parser_;
    Capabilities offered_;
    AwaitedQueue awaited_;
    Stage stage_ = Stage::opening;
    bool served_ = false;               // the next hop has taken our EHLO or HELO
    bool reset_needed_ = false;         // the next hop may still hold a transaction of ours
    bool ready_due_ = false;            // on_ready() is to be called
    bool announcing_ = false;           // on_ready() is being called

    OutgoingMessage message_;
    Step step_ = Step::settle;          // the next one to take
    std::vector<Recipient> recipients_;
    size_t undecided_ = 0;              // recipients without an outcome
    size_t next_recipient_ = 0;         // first that may be unasked
    size_t next_answer_ = 0;            // first whose RCPT may be unanswered
    size_t next_verdict_ = 0;           // first whose reply to the end of data may be outstanding (LMTP)
    bool chunked_ = false;              // BDAT, not DATA
    bool body_wanted_ = false;          // on_body_wanted() was called, body_end() not yet
    uint64_t body_left_ = 0;            // of message_.bytes, while the body is wanted
    DotStuffer stuffer_;
    std::string why_;                   // text of the failure that ended the session
};

}  // namespace postern::proto
