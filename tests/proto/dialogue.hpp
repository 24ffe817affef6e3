// Scenario files (tests/dialogues/*.smtp, described in tests/dialogues/README.md) and the player that holds a
// ServerSession to them.
#pragma once

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <stdexcept>
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

namespace detail {

inline std::string unescape(std::string_view text) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '\\' || i + 1 == text.size()) {
            out.push_back(text[i]);
            continue;
        }
        switch (const char code = text[++i]) {
            case 'r': out.push_back('\r'); break;
            case 'n': out.push_back('\n'); break;
            case 't': out.push_back('\t'); break;
            case '0': out.push_back('\0'); break;
            case 'x':
                out.push_back(static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16)));
                i += 2;
                break;
            default: out.push_back(code);
        }
    }
    return out;
}

inline std::string take_word(std::string_view& text) {
    const size_t end = std::min(text.find(' '), text.size());
    std::string word(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    return word;
}

inline void set(ServerSettings& settings, const std::string& name, const std::string& value) {
    const auto number = [&] { return std::stoull(value); };
    if (name == "message_bytes_max") settings.message_bytes_max = number();
    else if (name == "recipients_max") settings.recipients_max = static_cast<uint32_t>(number());
    else if (name == "command_line_bytes_max") settings.command_line_bytes_max = static_cast<uint32_t>(number());
    else if (name == "errors_max") settings.errors_max = static_cast<uint32_t>(number());
    else if (name == "junk_commands_max") settings.junk_commands_max = static_cast<uint32_t>(number());
    else if (name == "header_bytes_max") settings.header_bytes_max = static_cast<uint32_t>(number());
    else if (name == "hops_max") settings.hops_max = static_cast<uint32_t>(number());
    else if (name == "bare_newline")
        settings.bare_newline = value == "normalize" ? BareNewline::normalize : BareNewline::reject;
    else if (name == "chunking") settings.chunking = value == "on";
    else if (name == "smtputf8") settings.smtputf8 = value == "on";
    else throw std::runtime_error("unknown setting " + name);
}

// "rcpt nouser@local.test refuse 550 5.1.1 No such user"
inline void add_policy(Dialogue& dialogue, std::string_view rest) {
    const std::string question = take_word(rest);
    const std::string about = take_word(rest);
    const std::string kind = take_word(rest);
    ScriptedAnswer answer;
    answer.kind = kind == "refuse"    ? Verdict::Kind::refuse
                  : kind == "pending" ? Verdict::Kind::pending
                                      : Verdict::Kind::accept;
    if (!rest.empty()) {
        answer.code = static_cast<uint16_t>(std::stoi(take_word(rest)));
        answer.enhanced = take_word(rest);
        answer.text = rest;
    }
    dialogue.policy[question + " " + about] = answer;
}

// "s@remote.test -> r@local.test, r2@local.test"
inline Message message_head(const std::string& text) {
    Message message;
    const size_t arrow = text.find(" -> ");
    message.sender = text.substr(0, arrow);
    if (message.sender == "<>") message.sender.clear();
    std::stringstream recipients(text.substr(arrow + 4));
    for (std::string one; std::getline(recipients, one, ',');)
        message.recipients.push_back(one.substr(one.find_first_not_of(' ')));
    return message;
}

inline void read_line(Dialogue& dialogue, const std::string& line) {
    if (line.empty() || line[0] == '#') return;
    std::string_view rest = line;
    std::string tag = take_word(rest);
    size_t times = 1;
    if (const size_t star = tag.find('*'); star != std::string::npos) {
        times = std::stoul(tag.substr(star + 1));
        tag = tag.substr(0, star) + tag.back();
    }
    for (; times > 0; --times) {
        if (tag == "C:") dialogue.client += unescape(rest) + "\r\n";
        else if (tag == "C+") dialogue.client += unescape(rest);
        else if (tag == "S:") dialogue.replies.emplace_back(rest);
        else if (tag == "SET") {
            const std::string name = take_word(rest);
            set(dialogue.settings, name, std::string(rest));
        } else if (tag == "POLICY")
            add_policy(dialogue, rest);
        else if (tag == "MESSAGE") dialogue.messages.push_back(message_head(std::string(rest)));
        else if (tag == "|") dialogue.messages.back().octets += unescape(rest) + "\r\n";
        else if (tag == "|+") dialogue.messages.back().octets += unescape(rest);
        else if (tag == "CLOSED") dialogue.closed = true;
        else throw std::runtime_error("unknown line: " + line);
    }
}

}  // namespace detail

inline Dialogue read_dialogue(const std::string& path) {
    std::ifstream file(path);
    if (!file) throw std::runtime_error("cannot read " + path);
    Dialogue dialogue;
    dialogue.settings.hostname = "mx.local.test";
    size_t number = 0;
    for (std::string line; std::getline(file, line);) {
        ++number;
        try {
            detail::read_line(dialogue, line);
        } catch (const std::exception& failure) {
            throw std::runtime_error(path + ":" + std::to_string(number) + ": " + failure.what());
        }
    }
    return dialogue;
}

inline Verdict RecordingOwner::judge(const std::string& question) {
    log.push_back(question);
    auto found = policy_.find(question);
    if (found == policy_.end()) found = policy_.find(question.substr(0, question.find(' ')) + " *");
    if (found == policy_.end()) return Verdict::accept();
    const ScriptedAnswer& answer = found->second;
    if (answer.kind == Verdict::Kind::pending) pending_ = answer.reply();
    return {answer.kind, answer.kind == Verdict::Kind::pending ? Reply{} : answer.reply()};
}

inline Verdict RecordingOwner::on_mail(const Envelope& envelope) {
    const Verdict verdict = judge("mail " + std::string(envelope.sender()));
    open = verdict.kind != Verdict::Kind::refuse;
    return verdict;
}

inline Verdict RecordingOwner::on_recipient(const Mailbox&, std::string_view canonical) {
    return judge("rcpt " + std::string(canonical));
}

inline Verdict RecordingOwner::on_data_start(const Envelope& envelope) {
    return judge("data " + std::string(envelope.sender()));
}

inline Verdict RecordingOwner::on_data_end(const Envelope& envelope, const DataFacts& facts) {
    Message message{std::string(envelope.sender()), {}, octets_};
    for (size_t i = 0; i < envelope.recipient_count(); ++i) message.recipients.emplace_back(envelope.recipient(i));
    if (facts.bytes != octets_.size()) log.push_back("facts.bytes is wrong");
    messages.push_back(message);
    octets_.clear();
    open = false;
    return judge("end " + message.sender);
}

inline void RecordingOwner::on_abandoned() {
    log.push_back(open ? "abandoned" : "abandoned without a transaction");
    open = false;
    octets_.clear();
}

inline void RecordingOwner::on_command(Verb verb) {
    ++commands;
    log.push_back("command " + std::string(verb_name(verb)));
}

inline void RecordingOwner::on_reply(Stage stage, uint16_t code) {
    ++replies;
    if (code == 354) ++data_starts;
    log.push_back("reply " + std::string(stage_name(stage)) + " " + std::to_string(code));
}

inline void RecordingOwner::on_refused(Stage, const Reply& reply, std::string_view about) {
    log.push_back("refused " + std::to_string(reply.code) + " " + std::string(about));
}

inline Played play(const Dialogue& dialogue, const std::function<size_t()>& next_piece) {
    RecordingOwner owner(dialogue.policy);
    ServerSession session(dialogue.settings, owner);
    Played played;
    session.greet(played.output);
    std::string_view rest = dialogue.client;
    while (!rest.empty() && !session.closing()) {
        std::string_view piece = rest.substr(0, std::max<size_t>(1, next_piece()));
        rest.remove_prefix(piece.size());
        while (!piece.empty() && !session.closing()) {
            // A copy of its own, so that a view kept beyond the call is found by the sanitizer.
            const std::string received(piece);
            piece.remove_prefix(session.feed(received, played.output));
            if (session.waiting()) session.verdict(session.generation(), owner.pending_answer(), played.output);
        }
    }
    played.closed = session.closing();
    played.in_data_at_end = session.in_data();
    session.end_of_input();
    played.open_at_end = owner.open;
    played.log = owner.log;
    played.messages = owner.messages;
    played.commands = owner.commands;
    played.replies = owner.replies;
    played.data_starts = owner.data_starts;
    return played;
}

inline std::vector<std::string> lines_of(std::string_view output) {
    std::vector<std::string> lines;
    while (!output.empty()) {
        const size_t end = output.find("\r\n");
        lines.emplace_back(output.substr(0, end));
        if (end == std::string_view::npos) break;
        output.remove_prefix(end + 2);
    }
    return lines;
}

}  // namespace postern::proto::test
