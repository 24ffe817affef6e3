// Any text is either a configuration or a list of mistakes, each with words and a place inside the text; a usable one can be
// explained.  The first line, when the text has one, is tried as each kind of value as well.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "config/config.hpp"
#include "config/values.hpp"
#include "ring/base/check.hpp"

using namespace postern;
using namespace postern::config;

namespace {

void try_values(std::string_view text) {
    if (const auto bytes = parse_bytes(text)) CHECK_INVARIANT(parse_bytes(bytes_text(*bytes)).value() == *bytes);
    if (const auto duration = parse_duration(text)) CHECK_INVARIANT(parse_duration(duration_text(*duration)).value() == *duration);
    if (const auto network = parse_network(text)) CHECK_INVARIANT(network->contains(network->ipv6, network->octets));
    if (const auto target = parse_target(text)) CHECK_INVARIANT(target->kind == Target::Kind::discard || !(target->host.empty() && target->path.empty()));
    if (parse_endpoint(text)) CHECK_INVARIANT(text.find(':') != text.npos);
    if (check_host_name(text)) CHECK_INVARIANT(check_domain_pattern(text).has_value());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    try_values(text.substr(0, text.find('\n')));
    const auto lines = static_cast<uint32_t>(std::count(text.begin(), text.end(), '\n')) + 1;
    const Loaded loaded = load_text(text, "fuzz");
    for (const Finding& finding : loaded.findings) {
        CHECK_INVARIANT(!finding.message.empty());
        CHECK_INVARIANT(finding.line <= lines + 1);
    }
    if (loaded.usable()) CHECK_INVARIANT(!explain(loaded.config).empty() && !loaded.config.listeners.empty());
    return 0;
}
