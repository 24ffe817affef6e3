#include "gateway/policy/domain_table.hpp"

namespace postern::gateway {

void DomainTable::add(std::string_view pattern, uint32_t value) {
    if (pattern == "*") {
        if (!any_) any_ = value;
    } else if (pattern.starts_with('.')) {
        suffix_.try_emplace(std::string(pattern.substr(1)), value);
    } else {
        exact_.try_emplace(std::string(pattern), value);
    }
}

std::optional<uint32_t> DomainTable::find(std::string_view domain) const {
    if (auto found = exact_.find(domain); found != exact_.end()) return found->second;
    // ".example.org" takes a.example.org and a.b.example.org, the longest suffix first, but not example.org itself.
    for (size_t dot = domain.find('.'); dot != std::string_view::npos && !suffix_.empty(); dot = domain.find('.', dot + 1))
        if (auto found = suffix_.find(domain.substr(dot + 1)); found != suffix_.end()) return found->second;
    return any_;
}

}  // namespace postern::gateway
