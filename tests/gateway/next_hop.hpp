// A next hop that does as it is told: an SMTP or LMTP server on the loop under test, so that a test says what is answered
// and when, and sees what arrived.
//
//     NextHop hop(loop);
//     hop.once("RCPT", "450 4.2.1 later");        // the next RCPT is answered so, all others as usual
//     hop.hold(".");                              // no answer to the end of data until release()
//
// Verbs are "greeting", those of SMTP, and "." for the end of data (of DATA, or of BDAT ... LAST).
#pragma once

#include <catch2/catch.hpp>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ring/listener.hpp"
#include "ring/stream.hpp"

namespace postern::gateway::test {

class NextHop final : private ring::ListenerHandler {
public:
    enum class Protocol { smtp, lmtp };
    struct Mail {
        std::string sender;                     // as in "<...>"
        std::vector<std::string> recipients;    // those that were accepted
        std::string body;
    };

    explicit NextHop(ring::Loop& loop, Protocol protocol = Protocol::smtp) : loop_(loop), lmtp_(protocol == Protocol::lmtp) {
        limits_.unsent_bytes_max = 0;
        open();
    }
    ~NextHop() {
        close();
        for (auto& connection : connections_) connection->stream.abort();
        for (int turns = 0; (!connections_.empty() || !closed()) && turns < 1000; ++turns) loop_.run_turn(milliseconds(5));
    }

    uint16_t port() const { return port_; }
    void open() {                               // listens, at the same port as before
        auto socket = ring::listen_on(*ring::parse_socket_address("127.0.0.1:" + std::to_string(port_)), 64);
        REQUIRE(socket);
        port_ = *ring::bound_port(socket->get());
        ring::ListenerHandler& handler = *this;
        listeners_.push_back(std::make_unique<ring::Listener>(loop_, handler, std::move(*socket)));
        listeners_.back()->start();
    }
    void close() {                              // connections stay
        if (!listeners_.empty()) listeners_.back()->close();
    }
    bool closed() const { return listeners_.empty() || listeners_.back()->closed(); }

    void once(const std::string& verb, const std::string& reply) { once_[verb].push_back({reply, false}); }
    void once_hang_up_after(const std::string& verb, const std::string& reply) { once_[verb].push_back({reply, true}); }
    void hold(const std::string& verb) { held_verbs_.insert(verb); }
    void release() {
        held_verbs_.clear();
        for (auto& connection : connections_) connection->say(std::exchange(connection->held, {}));
    }
    // All connections end with a FIN; `last_words` go before it.
    void hang_up(const std::string& last_words = {}) {
        for (auto& connection : connections_) {
            connection->stream.send(last_words);
            connection->stream.close();
        }
    }
    void offer(const std::string& keyword) { offered_ += "250-" + keyword + "\r\n"; }

    size_t open_connections() const { return connections_.size(); }
    size_t held() const {
        return static_cast<size_t>(std::count_if(connections_.begin(), connections_.end(), [](auto& c) { return !c->held.empty(); }));
    }
    std::vector<std::string> bodies() const {
        std::vector<std::string> bodies;
        for (const Mail& mail : mails) bodies.push_back(mail.body);
        std::sort(bodies.begin(), bodies.end());
        return bodies;
    }

    std::vector<Mail> mails;                    // whose end of data was answered with 2xx, or is held
    std::vector<std::string> commands;          // all lines, of all connections
    size_t accepted = 0;                        // connections, so far

private:
    struct Answer {
        std::string reply;
        bool hang_up = false;
    };

    struct Connection final : ring::StreamHandler {
        Connection(NextHop& of, UniqueFd fd) : hop(of), stream(of.loop_, *this, of.limits_) { stream.start(std::move(fd)); }

        size_t on_received(std::string_view octets) override {
            input.append(octets);
            while (!stream.closing() && step()) {}
            return octets.size();
        }
        void on_end_of_input() override { stream.close(); }
        void on_deadline() override {}
        void on_closed(int) override {
            std::erase_if(hop.connections_, [this](const auto& owned) { return owned.get() == this; });
        }

        void say(const std::string& reply) {
            if (!reply.empty()) stream.send(reply);
        }

        // False: more octets are needed.
        bool step() {
            if (chunk_left > 0) {
                const size_t taken = std::min<size_t>(chunk_left, input.size());
                mail.body.append(input, 0, taken);
                input.erase(0, taken);
                chunk_left -= taken;
                if (chunk_left > 0) return false;
                end_of_message();
                return true;
            }
            if (in_data) {
                const size_t end = input.starts_with(".\r\n") ? 0 : input.find("\r\n.\r\n");
                if (end == std::string::npos) return false;
                const size_t bytes = end == 0 ? 0 : end + 2;
                for (size_t at = 0; at < bytes;) {              // line by line, unstuffed
                    const size_t next = input.find("\r\n", at) + 2;
                    if (input[at] == '.') ++at;
                    mail.body.append(input, at, next - at);
                    at = next;
                }
                input.erase(0, bytes + 3);
                in_data = false;
                end_of_message();
                return true;
            }
            const size_t end = input.find("\r\n");
            if (end == std::string::npos) return false;
            const std::string line = input.substr(0, end);
            input.erase(0, end + 2);
            hop.commands.push_back(line);
            command(line);
            return true;
        }

        void command(const std::string& line) {
            const std::string verb = line.substr(0, line.find(' '));
            const size_t open = line.find('<'), close = line.find('>');
            const std::string path = close == std::string::npos ? "" : line.substr(open + 1, close - open - 1);
            if (verb == "EHLO" || verb == "LHLO") {
                answer(verb, "250-next.hop.test\r\n250-PIPELINING\r\n" + hop.offered_ + "250 SIZE\r\n");
            } else if (verb == "MAIL") {
                mail = {path, {}, {}};
                answer(verb, "250 2.1.0 Ok\r\n");
            } else if (verb == "RCPT") {
                if (answer(verb, "250 2.1.5 Ok\r\n")) mail.recipients.push_back(path);
            } else if (verb == "DATA") {
                in_data = !mail.recipients.empty() && answer(verb, "354 Go ahead\r\n");
                if (mail.recipients.empty()) say("554 5.5.1 No valid recipients\r\n");
            } else if (verb == "BDAT") {
                chunk_left = std::stoull(line.substr(5));
            } else if (verb == "QUIT") {
                answer(verb, "221 2.0.0 Bye\r\n");
                stream.close();
            } else {
                answer(verb, "250 2.0.0 Ok\r\n");
            }
        }

        void end_of_message() {
            bool taken = false;
            if (mail.recipients.empty()) {
                say("554 5.5.1 No valid recipients\r\n");
            } else {
                for (size_t replies = hop.lmtp_ ? mail.recipients.size() : 1; replies > 0; --replies)
                    taken |= answer(".", "250 2.0.0 Taken\r\n");
            }
            if (taken) hop.mails.push_back(mail);
            mail = {};
        }

        // Whether it was a yes.
        bool answer(const std::string& verb, const std::string& usual) {
            if (hop.held_verbs_.contains(verb)) {
                held += usual;
                return true;
            }
            Answer given{usual};
            if (auto& planned = hop.once_[verb]; !planned.empty()) {
                given = planned.front();
                if (!given.reply.empty()) given.reply += "\r\n";
                planned.pop_front();
            }
            say(given.reply);
            if (given.hang_up) stream.close();
            return given.reply.starts_with('2') || given.reply.starts_with('3');
        }

        NextHop& hop;
        ring::Stream stream;
        std::string input;
        std::string held;
        Mail mail;
        bool in_data = false;
        uint64_t chunk_left = 0;
    };

    void on_accepted(UniqueFd fd) override {
        ++accepted;
        Connection& connection = *connections_.emplace_back(std::make_unique<Connection>(*this, std::move(fd)));
        connection.answer("greeting", "220 next.hop.test\r\n");
    }
    void on_accept_failed(int error) override { FAIL("the next hop cannot accept: " << error); }

    ring::Loop& loop_;
    const bool lmtp_;
    uint16_t port_ = 0;
    ring::StreamLimits limits_;
    std::vector<std::unique_ptr<ring::Listener>> listeners_;
    std::vector<std::unique_ptr<Connection>> connections_;
    std::map<std::string, std::deque<Answer>> once_;
    std::set<std::string> held_verbs_;
    std::string offered_;
};

}  // namespace postern::gateway::test
