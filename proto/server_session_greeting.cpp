// ServerSession: greeting, HELO and EHLO, and the commands that move no mail.
#include "proto/server_commands.hpp"

namespace postern::proto {

namespace {

constexpr size_t helo_bytes_kept = 255;

// What goes into the trace field and the log: a domain, an address literal, or something as harmless.
std::string sanitised_name(std::string_view name) {
    std::string kept(name.substr(0, helo_bytes_kept));
    for (char& octet : kept) {
        const bool harmless = (octet >= 'a' && octet <= 'z') || (octet >= 'A' && octet <= 'Z') ||
                              (octet >= '0' && octet <= '9') ||
                              std::string_view("-._:[]").find(octet) != std::string_view::npos;
        if (!harmless) octet = '?';
    }
    return kept;
}

}  // namespace

// Any one word is taken (RFC 5321 §4.1.4: not refused for a name that does not verify).
Reply check_helo(const CheckContext&, CommandArguments& arguments) {
    if (arguments.text.empty()) return {501, "5.5.4", "Your host name is missing"};
    if (arguments.text.find(' ') != std::string_view::npos) return {501, "5.5.4", "A host name has no blanks"};
    return {};
}

Reply check_no_argument(const CheckContext&, CommandArguments& arguments) {
    return arguments.text.empty() ? Reply{} : Reply{501, "5.5.4", "This command takes no argument"};
}

Reply check_anything(const CheckContext&, CommandArguments&) { return {}; }

Reply check_vrfy(const CheckContext&, CommandArguments& arguments) {
    return arguments.text.empty() ? Reply{501, "5.5.4", "Whom?"} : Reply{};
}

Reply check_not_offered(const CheckContext&, CommandArguments&) { return {502, "5.5.1", "Command not offered here"}; }

Reply check_lhlo(const CheckContext&, CommandArguments&) { return {500, "5.5.1", "This is SMTP, say EHLO"}; }

Reply check_http(const CheckContext&, CommandArguments&) { return {421, "4.7.0", "This is not an HTTP server"}; }

Reply check_unknown(const CheckContext&, CommandArguments&) { return {500, "5.5.2", "Command not recognised"}; }

void ServerSession::greet(std::string& out) {
    std::string text = settings_.hostname;
    text.append(" ESMTP Postern");
    say(Stage::connect, {220, {}, text}, out);
}

void ServerSession::refuse_service(const Reply& reply, std::string& out) {
    service_refused_ = true;
    if (reply.code == 421) closing_ = true;
    say_refusal(Stage::connect, {reply.code, {}, reply.text}, {}, out);
}

// A repeated greeting is a RSET too (RFC 5321 §4.1.4).
void ServerSession::begin_greeted(std::string_view name, bool esmtp) {
    reset_transaction();
    helo_ = sanitised_name(name);
    esmtp_ = esmtp;
}

void ServerSession::proceed_helo(const Arguments& arguments, std::string& out) {
    begin_greeted(arguments.text, false);
    say(Stage::helo, {250, {}, settings_.hostname}, out);
}

void ServerSession::proceed_ehlo(const Arguments& arguments, std::string& out) {
    begin_greeted(arguments.text, true);
    std::string text = settings_.hostname;
    if (settings_.pipelining) text.append("\nPIPELINING");
    text.append("\nSIZE ").append(std::to_string(settings_.message_bytes_max));
    text.append("\n8BITMIME");
    if (settings_.smtputf8) text.append("\nSMTPUTF8");
    text.append("\nENHANCEDSTATUSCODES");
    if (settings_.chunking) text.append("\nCHUNKING\nBINARYMIME");
    say(Stage::helo, {250, {}, text}, out);
}

void ServerSession::proceed_rset(const Arguments&, std::string& out) {
    reset_transaction();
    say(Stage::other, {250, "2.0.0", "OK"}, out);
}

void ServerSession::proceed_noop(const Arguments&, std::string& out) { say(Stage::other, {250, "2.0.0", "OK"}, out); }

// Says neither yes nor no: addresses cannot be harvested here (RFC 5321 §7.3).
void ServerSession::proceed_vrfy(const Arguments&, std::string& out) {
    say(Stage::other, {252, "2.0.0", "Cannot verify; send mail and see"}, out);
}

void ServerSession::proceed_help(const Arguments&, std::string& out) {
    say(Stage::other, {214, "2.0.0", "HELO EHLO MAIL RCPT DATA BDAT RSET NOOP VRFY HELP QUIT"}, out);
}

void ServerSession::proceed_quit(const Arguments&, std::string& out) {
    reset_transaction();
    closing_ = true;
    say(Stage::other, {221, "2.0.0", "Bye"}, out);
}

}  // namespace postern::proto
