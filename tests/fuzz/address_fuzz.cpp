// Paths: what is accepted has a canonical form that parses back to itself and holds no control octet.
#include <algorithm>
#include <string>

#include "proto/address.hpp"
#include "ring/base/check.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* octets, size_t bytes) {
    using namespace postern::proto;
    if (bytes == 0) return 0;
    PathOptions options;
    options.smtputf8 = octets[0] & 1;
    options.null_allowed = octets[0] & 2;
    options.postmaster_allowed = octets[0] & 4;
    options.brackets_needed = octets[0] & 8;
    const std::string text(reinterpret_cast<const char*>(octets + 1), bytes - 1);
    const PathResult result = parse_path(text, options);
    CHECK_INVARIANT(result.consumed <= text.size());
    if (result.error != AddressError::none) return 0;

    std::string canonical;
    append_canonical(canonical, result.mailbox);
    CHECK_INVARIANT(canonical.size() <= 254);
    CHECK_INVARIANT(
        std::none_of(canonical.begin(), canonical.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }));
    options.brackets_needed = true;
    const std::string path = std::string("<").append(canonical).append(">");
    const PathResult again = parse_path(path, options);
    CHECK_INVARIANT(again.error == AddressError::none && again.consumed == canonical.size() + 2);
    std::string twice;
    append_canonical(twice, again.mailbox);
    CHECK_INVARIANT(twice == canonical);
    return 0;
}
