// A small next hop for random tests: written without a look at ClientSession, it answers each command by a draw and keeps
// the truth about what it accepted.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ring/base/random.hpp"

namespace postern::test {

class ClientPeer {
public:
    struct Temper {                     // chances in a thousand, of each reply; what is left is acceptance
        uint64_t temporary = 0;
        uint64_t permanent = 0;
        uint64_t closing = 0;           // 421 and close
        uint64_t garbage = 0;
        uint64_t silent_close = 0;
    };

    ClientPeer(Random& random, Temper temper, bool lmtp, std::vector<std::string> offered)
        : random_(random), temper_(temper), lmtp_(lmtp), offered_(std::move(offered)) {
        answer("220 peer ESMTP");
    }

    std::string replies;                // to be carried to the client
    bool closed = false;
    std::string violation;              // the first thing that no client may do, or ""
    std::multimap<std::string, std::string> accepted;   // recipient -> content, where the last word was 2xx
    size_t permanent_refusals = 0;

    void take(std::string_view octets) {
        input_.append(octets);
        while (!closed && step()) {}
    }

private:
    enum class Mode { command, data, bdat };

    bool step() {
        if (mode_ == Mode::bdat) {
            if (input_.size() < bdat_bytes_) return false;
            const std::string content = input_.substr(0, bdat_bytes_);
            input_.erase(0, bdat_bytes_);
            mode_ = Mode::command;
            content_ended(content);
            return true;
        }
        const size_t end = input_.find("\r\n");
        if (end == std::string::npos) return false;
        const std::string line = input_.substr(0, end);
        input_.erase(0, end + 2);
        if (mode_ == Mode::data) {
            data_line(line);
        } else {
            command(line);
        }
        return true;
    }

    void data_line(std::string line) {
        if (line == ".") {
            mode_ = Mode::command;
            content_ended(std::exchange(content_, {}));
            return;
        }
        if (line.starts_with('.')) line.erase(0, 1);
        content_ += line + "\r\n";
    }

    void command(const std::string& line) {
        const std::string verb = line.substr(0, line.find(' '));
        if (verb == "EHLO" || verb == "LHLO") {
            if ((verb == "LHLO") != lmtp_) violation = "wrong hello";
            if (!draw("")) return;
            for (const std::string& keyword : offered_) replies += "250-" + keyword + "\r\n";
            replies += "250 HELP\r\n";
        } else if (verb == "HELO") {
            offered_.clear();
            draw("250 peer");
        } else if (verb == "RSET") {
            mail_ = false;
            recipients_.clear();
            answer("250 2.0.0 reset");
        } else if (verb == "MAIL") {
            if (mail_) violation = "nested MAIL";
            if (draw("250 2.1.0 ok")) mail_ = true;
        } else if (verb == "RCPT") {
            const std::string address = line.substr(9, line.size() - 10);
            if (!mail_) {
                refuse("503 5.5.1 MAIL first");
            } else if (draw("250 2.1.5 ok")) {
                recipients_.push_back(address);
            }
        } else if (verb == "DATA") {
            if (recipients_.empty() && (lmtp_ || random_.below(2))) {
                refuse("503 5.5.1 no recipients");
            } else if (draw("354 go")) {
                mode_ = Mode::data;
            }
        } else if (verb == "BDAT") {
            bdat_bytes_ = std::stoull(line.substr(5));
            if (!line.ends_with(" LAST")) violation = "BDAT without LAST";
            mode_ = Mode::bdat;
        } else if (verb == "QUIT") {
            answer("221 bye");
            closed = true;
        } else {
            violation = "unknown command: " + line;
        }
    }

    void content_ended(const std::string& content) {
        if (recipients_.empty()) {
            refuse("503 5.5.1 no recipients");
            return;         // the transaction stays as it is: a client that trusts it must say RSET
        }
        const std::vector<std::string> recipients = std::exchange(recipients_, {});
        mail_ = false;
        if (lmtp_) {
            for (const std::string& recipient : recipients) {
                if (!closed && draw("250 2.0.0 delivered")) accepted.emplace(recipient, content);
            }
        } else if (draw("250 2.0.0 queued")) {
            for (const std::string& recipient : recipients) accepted.emplace(recipient, content);
        }
    }

    // True when the draw is acceptance; `positive` has been answered then.
    bool draw(std::string_view positive) {
        uint64_t roll = random_.below(1000);
        const auto falls = [&](uint64_t chance) { return roll < chance ? true : (roll -= chance, false); };
        if (falls(temper_.temporary)) {
            answer("451 4.3.0 later");
        } else if (falls(temper_.permanent)) {
            refuse("550 5.7.1 no");
        } else if (falls(temper_.closing)) {
            answer("421 4.3.2 down");
            closed = true;
        } else if (falls(temper_.garbage)) {
            const std::string_view wrong_digit = positive.starts_with('3') ? "250 ok" : "354 go";
            const std::string_view nonsense[] = {"hello", "", "199 x", wrong_digit, "250_x", "\x01\xff", "600 y"};
            answer(nonsense[random_.below(std::size(nonsense))]);
        } else if (falls(temper_.silent_close)) {
            closed = true;
        } else {
            if (!positive.empty()) answer(positive);
            return true;
        }
        return false;
    }

    void refuse(std::string_view line) {
        ++permanent_refusals;
        answer(line);
    }

    void answer(std::string_view line) {
        if (line.size() > 4 && random_.below(4) == 0) {
            replies.append(line.substr(0, 3)).append("-first line of two\r\n");
        }
        replies.append(line).append("\r\n");
    }

    Random& random_;
    Temper temper_;
    bool lmtp_;
    std::vector<std::string> offered_;
    std::string input_;
    Mode mode_ = Mode::command;
    uint64_t bdat_bytes_ = 0;
    bool mail_ = false;
    std::vector<std::string> recipients_;
    std::string content_;
};

}  // namespace postern::test
