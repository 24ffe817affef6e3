// Queue ids: the name of a message in logs, trace fields, replies and file names.  Never used again (not even after the
// clock stepped or the spool's segments were all recycled): they rest on a boot number that is made durable at each start.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace postern::storage {

// boot number 24 bits | shard 8 bits | counter 32 bits.
struct QueueId {
    uint64_t value = 0;
    auto operator<=>(const QueueId&) const = default;
};

// 13 characters, Crockford's base 32 in upper case, most significant first: sorts as the number does.
struct QueueIdText {
    std::array<char, 13> characters;
    operator std::string_view() const { return {characters.data(), characters.size()}; }
};
QueueIdText text_of(QueueId id);
std::optional<QueueId> parse_queue_id(std::string_view text);

}  // namespace postern::storage
