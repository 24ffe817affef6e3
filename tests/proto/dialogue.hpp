// Scenario files (tests/dialogues/*.smtp, described in tests/dialogues/README.md) and the player that holds a
// ServerSession to them.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "proto/server_session.hpp"

namespace postern::proto::test {

// What a scripted owner answers; texts live in the dialogue.
struct ScriptedAnswer {
    Verdict::Kind kind = Verdict::Kind::accept;
    uint16_t code = 0;
    std::string enhanced;
    std::string text;
    Reply reply() const { return {code, enhanced, text}; }
};

struct Message {
    std::string sender;
    std::vector<std::string> recipients;
    std::string octets;
    bool operator==(const Message&) const = default;
};

struct Dialogue {
    ServerSettings settings;
    std::map<std::string, ScriptedAnswer> policy;       // "rcpt nouser@local.test"
    std::string client;                                 // all octets, in order
    std::vector<std::string> replies;                   // expected lines, each a prefix of the real one
    std::vector<Message> messages;
    bool closed = false;
};

// Throws std::runtime_error with the line's number when the file is malformed.
Dialogue read_dialogue(const std::string& path);

// The owner of a session: judges by script, writes down what happened.  What was stored of an abandoned message is
// forgotten, as a real owner does.
class RecordingOwner final : public ServerEvents {
public:
    explicit RecordingOwner(const std::map<std::string, ScriptedAnswer>& policy) : policy_(policy) {}

    void on_data(std::string_view slice) override { octets_.append(slice); }
    Verdict on_mail(const Envelope& envelope) override;
    Verdict on_recipient(const Mailbox& mailbox, std::string_view canonical) override;
    Verdict on_data_start(const Envelope& envelope) override;
    Verdict on_data_end(const Envelope& envelope, const DataFacts& facts) override;
    void on_abandoned() override;
    void on_command(Verb verb) override;
    void on_reply(Stage stage, uint16_t code) override;
    void on_refused(Stage stage, const Reply& reply, std::string_view about) override;

    Reply pending_answer() const { return pending_; }

    std::vector<std::string> log;
    std::vector<Message> messages;      // those asked to be committed
    size_t commands = 0;
    size_t replies = 0;
    size_t data_starts = 0;             // 354 replies
    bool open = false;                  // a transaction that has not ended

private:
    Verdict judge(const std::string& question);

    const std::map<std::string, ScriptedAnswer>& policy_;
    std::string octets_;
    Reply pending_;
};

struct Played {
    std::string output;
    std::vector<std::string> log;
    std::vector<Message> messages;
    bool closed = false;
    size_t commands = 0, replies = 0, data_starts = 0;
    bool open_at_end = false;           // the owner was not told of a transaction's end
    bool in_data_at_end = false;
};

// Plays the client's octets in pieces of `next_piece()` octets; pending verdicts are given when the session waits.
Played play(const Dialogue& dialogue, const std::function<size_t()>& next_piece);

std::vector<std::string> lines_of(std::string_view output);

}  // namespace postern::proto::test
