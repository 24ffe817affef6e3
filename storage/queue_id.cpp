#include "storage/queue_id.hpp"

namespace postern::storage {
namespace {

constexpr std::string_view alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";   // no I, L, O, U

}  // namespace

QueueIdText text_of(QueueId id) {
    QueueIdText text;
    for (size_t i = text.characters.size(); i-- > 0; id.value >>= 5) text.characters[i] = alphabet[id.value & 31];
    return text;
}

std::optional<QueueId> parse_queue_id(std::string_view text) {
    if (text.size() != 13) return std::nullopt;
    uint64_t value = 0;
    for (size_t i = 0; i < text.size(); ++i) {
        const size_t digit = alphabet.find(text[i]);
        if (digit == std::string_view::npos) return std::nullopt;
        if (i == 0 && digit > 15) return std::nullopt;      // 13 characters hold 65 bits
        value = value << 5 | digit;
    }
    return QueueId{value};
}

}  // namespace postern::storage
