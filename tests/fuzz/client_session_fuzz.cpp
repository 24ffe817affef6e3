// ClientSession against any next hop: whatever it says, whenever, the owner sees the contract kept (ClientDriver aborts
// otherwise), and the same events and output in one piece and octet by octet.
//
// Input: the first octet chooses settings and messages; then what the next hop says, where NUL means "the owner supplies a
// piece of the body" and 0x01 "the connection is lost".
#include "tests/support/client_driver.hpp"

using namespace postern;
using postern::test::ClientDriver;
using postern::test::TestMessage;

namespace {

std::vector<TestMessage> messages_of(uint8_t choice) {
    TestMessage message;
    message.recipients.assign(choice & 0x10 ? 120 : 3, "r@example.net");
    message.content = choice & 0x20 ? ".dot\r\n..\r\nno end" : "plain\r\n";
    if (choice & 0x40) message.recipients[1] = "bad\r\nDATA";
    TestMessage second;
    second.body = choice & 0x80 ? proto::BodyType::binary_mime : proto::BodyType::eight_bit_mime;
    second.content = "caf\xc3\xa9\r\n";
    return {message, second, message};
}

struct Result {
    std::string out;
    std::vector<std::string> events;
    bool operator==(const Result&) const = default;
};

Result run(std::string_view input, uint8_t choice, size_t piece_bytes) {
    proto::ClientSettings settings;
    settings.hostname = "me.test";
    settings.lmtp = choice & 1;
    settings.pipelining = !(choice & 2);
    settings.chunking = !(choice & 4);
    ClientDriver driver(settings, messages_of(choice));
    driver.quit_when_done = choice & 8;
    while (!input.empty()) {
        const size_t said = std::min(input.find_first_of(std::string_view("\0\1", 2)), input.size());
        for (size_t at = 0; at < said; at += piece_bytes) {
            driver.feed(input.substr(at, std::min(piece_bytes, said - at)));
        }
        if (said < input.size()) {
            if (input[said] == '\1') driver.lose_connection("lost");
            if (input[said] == '\0' && driver.body_wanted()) driver.supply_body(4, choice & 0x20);
        }
        input.remove_prefix(std::min(said + 1, input.size()));
    }
    driver.lose_connection("end of input");
    CHECK_INVARIANT(driver.over);
    return {driver.out, driver.events};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
    if (bytes == 0) return 0;
    const std::string_view input(reinterpret_cast<const char*>(data) + 1, bytes - 1);
    CHECK_INVARIANT(run(input, data[0], input.size() + 1) == run(input, data[0], 1));
    return 0;
}
