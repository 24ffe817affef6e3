// A whole connection: no split changes replies or events, each command has one reply, nothing stays open.
// First octet: settings, verdicts, size of the pieces; the rest is what the client sends.
#include <string>

#include "ring/base/check.hpp"
#include "tests/proto/dialogue.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* octets, size_t bytes) {
    using namespace postern::proto;
    using namespace postern::proto::test;
    if (bytes == 0) return 0;
    Dialogue dialogue;
    dialogue.settings.hostname = "mx.local.test";
    dialogue.settings.message_bytes_max = 2000;
    dialogue.settings.header_bytes_max = 500;
    dialogue.settings.hops_max = 3;
    dialogue.settings.command_line_bytes_max = 512;
    dialogue.settings.bare_newline = octets[0] & 1 ? BareNewline::normalize : BareNewline::reject;
    dialogue.policy["rcpt nouser@local.test"] = {Verdict::Kind::refuse, 550, "5.1.1", "No such user"};
    if (octets[0] & 2) {
        for (const char* question : {"mail *", "rcpt *", "data *", "end *"})
            dialogue.policy[question] = {Verdict::Kind::pending, 0, "", ""};
    }
    const size_t piece = 1 + (octets[0] >> 2);
    dialogue.client.assign(reinterpret_cast<const char*>(octets + 1), bytes - 1);

    const Played whole = play(dialogue, [&] { return dialogue.client.size(); });
    const size_t unanswered = whole.in_data_at_end ? 1 : 0;
    CHECK_INVARIANT(whole.replies + unanswered >= 1 + whole.commands);
    CHECK_INVARIANT(whole.replies + unanswered <= 1 + whole.commands + whole.data_starts);
    CHECK_INVARIANT(!whole.open_at_end);
    const Played split = play(dialogue, [&] { return piece; });
    CHECK_INVARIANT(split.output == whole.output);
    CHECK_INVARIANT(split.log == whole.log);
    CHECK_INVARIANT(split.messages == whole.messages);
    return 0;
}
