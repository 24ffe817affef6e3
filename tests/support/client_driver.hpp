// The owner of a ClientSession in tests and fuzzers: sends its messages one after the other, supplies bodies on demand,
// writes down what happens, and aborts when the session breaks its contract towards the owner:
// one outcome for each recipient, one on_message_done() for each message and only then, no event and no octet after the end.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "proto/client_session.hpp"
#include "ring/base/check.hpp"

namespace postern::test {

struct TestMessage {
    std::string sender = "s@example.org";
    std::vector<std::string> recipients = {"a@example.net"};
    std::string content = "Subject: x\r\n\r\nbody\r\n";
    proto::BodyType body = proto::BodyType::seven_bit;
    bool smtputf8 = false;
};

class ClientDriver final : public proto::ClientEvents {
public:
    struct MessageRecord {
        std::vector<std::optional<proto::Outcome>> outcomes;
        bool done = false;
    };

    ClientDriver(const proto::ClientSettings& settings, std::vector<TestMessage> messages)
        : session(settings, *this), messages_(std::move(messages)) {}

    bool quit_when_done = true;         // else the session stays idle
    proto::ClientSession session;
    std::string out;                    // what the session wrote; the test may take from it
    std::vector<std::string> events;
    std::vector<MessageRecord> records; // of the messages sent so far
    bool over = false;
    bool refused = false;

    void feed(std::string_view octets) {
        const Quiet quiet(*this);
        session.feed(octets, out);
    }

    void lose_connection(std::string_view why) {
        const Quiet quiet(*this);
        session.connection_lost(why);
    }

    bool body_wanted() const { return body_wanted_ && !over; }

    // Supplies up to `bytes_max` octets of the wanted body; when none are left, its end.
    void supply_body(size_t bytes_max, bool uncopied = false) {
        const Quiet quiet(*this);
        const std::string_view rest = std::string_view(content_).substr(content_given_);
        const std::string_view piece = rest.substr(0, bytes_max);
        content_given_ += piece.size();
        if (piece.empty()) {
            body_wanted_ = false;
            session.body_end(out);
        } else if (uncopied && session.body_unchanged()) {
            session.body_passed(piece);
            if (!over) out.append(piece);
        } else {
            session.body(piece, out);
        }
    }

    void on_ready() override {
        CHECK_INVARIANT(!over && session.ready() && (records.empty() || records.back().done));
        events.push_back("ready");
        if (records.size() < messages_.size()) {
            send(messages_[records.size()]);
        } else if (quit_when_done) {
            session.quit(out);
        }
    }

    void on_body_wanted() override {
        CHECK_INVARIANT(!over && session.busy() && !body_wanted_);
        events.push_back("body wanted");
        body_wanted_ = true;
        content_given_ = 0;
    }

    void on_recipient_done(size_t recipient, proto::Outcome outcome, const proto::RemoteReply& reply) override {
        CHECK_INVARIANT(!over && !records.back().done);
        auto& slot = records.back().outcomes.at(recipient);
        CHECK_INVARIANT(!slot);
        slot = outcome;
        static constexpr const char* names[] = {"delivered", "deferred", "failed"};
        events.push_back(std::to_string(recipient) + " " + names[static_cast<size_t>(outcome)] + reason(reply));
    }

    void on_message_done() override {
        CHECK_INVARIANT(!over && !records.back().done && !(body_wanted_ && session.busy()));
        for (const auto& outcome : records.back().outcomes) CHECK_INVARIANT(outcome.has_value());
        records.back().done = true;
        events.push_back("done");
    }

    void on_session_over(bool not_served, const proto::RemoteReply& reply) override {
        CHECK_INVARIANT(!over && (records.empty() || records.back().done));
        over = true;
        refused = not_served;
        events.push_back((not_served ? "over, refused" : "over") + reason(reply));
    }

private:
    // Nothing may be written by a call that finds the session over.
    class Quiet {
    public:
        explicit Quiet(ClientDriver& driver) : driver_(driver), over_(driver.over), bytes_(driver.out.size()) {}
        ~Quiet() { CHECK_INVARIANT(!over_ || driver_.out.size() == bytes_); }

    private:
        ClientDriver& driver_;
        bool over_;
        size_t bytes_;
    };

    void send(const TestMessage& message) {
        records.push_back({std::vector<std::optional<proto::Outcome>>(message.recipients.size()), false});
        recipients_.assign(message.recipients.begin(), message.recipients.end());
        content_ = message.content;
        body_wanted_ = false;
        proto::OutgoingMessage outgoing;
        outgoing.sender = message.sender;
        outgoing.recipients = recipients_;
        outgoing.bytes = content_.size();
        outgoing.body = message.body;
        outgoing.smtputf8 = message.smtputf8;
        for (const char c : content_) outgoing.eight_bit |= static_cast<unsigned char>(c) > 127;
        outgoing.dot_line = content_.starts_with('.') || content_.find("\r\n.") != std::string::npos;
        outgoing.ends_with_crlf = content_.empty() || content_.ends_with("\r\n");
        session.send(outgoing, out);
    }

    static std::string reason(const proto::RemoteReply& reply) {
        std::string text;
        if (reply.code != 0) text += " " + std::to_string(reply.code);
        if (!reply.enhanced.empty()) text.append(" ").append(reply.enhanced);
        if (!reply.text.empty()) text.append(" ").append(reply.text);
        return text;
    }

    std::vector<TestMessage> messages_;
    std::vector<std::string_view> recipients_;
    std::string content_;
    size_t content_given_ = 0;
    bool body_wanted_ = false;
};

}  // namespace postern::test
