// The framer against its reference.  First octet: DATA or BDAT, policy, size of the pieces; the rest is the input.
#include <algorithm>

#include "ring/base/check.hpp"
#include "tests/proto/framer_reference.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* octets, size_t bytes) {
    using namespace postern::proto;
    if (bytes == 0) return 0;
    const bool data = octets[0] & 1;
    const BareNewline policy = octets[0] & 2 ? BareNewline::normalize : BareNewline::reject;
    const size_t piece = octets[0] >> 2;
    std::string input(reinterpret_cast<const char*>(octets + 1), bytes - 1);
    if (data) input += "\r\n.\r\n";     // data that has not ended may still wait for an octet
    const test::Framed wanted = test::reference_frame(input, data, policy);
    const test::Framed framed = test::frame(input, data, policy, [&] { return piece == 0 ? input.size() : piece; });
    CHECK_INVARIANT(framed.octets == wanted.octets);
    CHECK_INVARIANT(framed.consumed == wanted.consumed);
    CHECK_INVARIANT(framed.ended == wanted.ended);
    CHECK_INVARIANT(test::same_facts(framed.facts, wanted.facts));
    return 0;
}
