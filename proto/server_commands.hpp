// The command table's row, and the checks in it.  Internal to ServerSession.
#pragma once

#include <cstdint>

#include "proto/parameters.hpp"
#include "proto/server_session.hpp"
#include "proto/transaction.hpp"

namespace postern::proto {

// What a check found in the argument, for proceed.
struct CommandArguments {
    std::string_view text;              // the whole argument, without blanks at both ends
    MailArguments mail;
    Mailbox recipient;
    ChunkArguments chunk;
};

// What a check may look at.
struct CheckContext {
    const ServerSettings& settings;
    const Transaction* transaction;     // null outside one
};

// Where a command is legal, how its argument is judged, what it changes.
// check() is pure and may only refuse (code 0: it does not); proceed() may not refuse by itself, but asks the owner.
struct ServerSession::CommandRule {
    Verb verb;
    Stage stage;
    uint8_t legal;                      // phases
    bool junk;                          // moves no mail: limited by junk_commands_max
    Reply (*check)(const CheckContext&, CommandArguments&);
    void (ServerSession::*proceed)(const CommandArguments&, std::string& out);     // null: always refused by check
};

// server_session_greeting.cpp
Reply check_helo(const CheckContext& context, CommandArguments& arguments);
Reply check_no_argument(const CheckContext& context, CommandArguments& arguments);
Reply check_anything(const CheckContext& context, CommandArguments& arguments);
Reply check_vrfy(const CheckContext& context, CommandArguments& arguments);
Reply check_not_offered(const CheckContext& context, CommandArguments& arguments);
Reply check_lhlo(const CheckContext& context, CommandArguments& arguments);
Reply check_http(const CheckContext& context, CommandArguments& arguments);
Reply check_unknown(const CheckContext& context, CommandArguments& arguments);
// server_session_mail.cpp
Reply check_mail(const CheckContext& context, CommandArguments& arguments);
Reply check_rcpt(const CheckContext& context, CommandArguments& arguments);
// server_session_data.cpp
Reply check_data(const CheckContext& context, CommandArguments& arguments);
Reply check_bdat(const CheckContext& context, CommandArguments& arguments);

}  // namespace postern::proto
