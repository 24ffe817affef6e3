// Command lines and the arguments of MAIL, RCPT and BDAT: views stay inside the line, limits hold.
#include <string>

#include "proto/command.hpp"
#include "proto/parameters.hpp"
#include "proto/server_session.hpp"
#include "ring/base/check.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* octets, size_t bytes) {
    using namespace postern::proto;
    const std::string line(reinterpret_cast<const char*>(octets), bytes);
    const auto inside = [&](std::string_view view) {
        return view.empty() || (view.data() >= line.data() && view.data() + view.size() <= line.data() + line.size());
    };
    const CommandLine command = parse_command(line);
    CHECK_INVARIANT(inside(command.argument));
    CHECK_INVARIANT(!verb_name(command.verb).empty());

    const ServerSettings settings;
    MailArguments mail;
    if (parse_mail(command.argument, settings, mail).code == 0) {
        CHECK_INVARIANT(inside(mail.sender.local_part) && inside(mail.sender.domain));
        CHECK_INVARIANT(mail.declared_bytes <= settings.message_bytes_max);
    }
    Mailbox recipient;
    if (parse_recipient(command.argument, true, recipient).code == 0)
        CHECK_INVARIANT(inside(recipient.local_part) && !recipient.null_path);
    ChunkArguments chunk;
    parse_chunk(command.argument, chunk);
    return 0;
}
