// Domains to values by the rules of the configuration: exact before the longest ".suffix" before "*".
//
// Built once, then read-only: any thread.  A look-up costs one hash of the domain and one for each of its labels.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace postern::gateway {

class DomainTable {
public:
    // The first value given for a pattern stays.  Patterns are in lower case.
    void add(std::string_view pattern, uint32_t value);
    // `domain` in lower case.
    std::optional<uint32_t> find(std::string_view domain) const;
    bool empty() const { return exact_.empty() && suffix_.empty() && !any_; }

private:
    struct Hash {
        using is_transparent = void;
        size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
    };
    using Map = std::unordered_map<std::string, uint32_t, Hash, std::equal_to<>>;
    Map exact_;
    Map suffix_;            // without the leading dot
    std::optional<uint32_t> any_;
};

}  // namespace postern::gateway
