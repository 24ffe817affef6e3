#include "config/report.hpp"

#include <algorithm>

namespace postern::config {

void Report::mistake_at(Place at, const std::string& key, std::string message) {
    findings_.push_back({true, file_, at.line, at.column, key, std::move(message)});
}

void Report::not_toml(Place at, std::string message) {
    mistake_at(at, "", "not TOML: " + std::move(message));
    unreadable_ = true;
}

void Report::add(bool fatal, const std::string& key, std::string message) {
    Place at;
    for (std::string_view part = key; !part.empty();) {
        if (const auto found = places_.find(std::string(part)); found != places_.end()) {
            at = found->second;
            break;
        }
        const size_t cut = part.find_last_of(".[");
        part = part.substr(0, cut == part.npos ? 0 : cut);
    }
    findings_.push_back({fatal, file_, at.line, at.column, key, std::move(message)});
}

bool Report::mistaken(std::string_view key) const {
    return std::any_of(findings_.begin(), findings_.end(), [&](const Finding& finding) {
        const std::string_view at = finding.key;
        return finding.fatal && at.starts_with(key) && (at.size() == key.size() || at[key.size()] == '.' || at[key.size()] == '[');
    });
}

std::vector<std::string> Report::left_to_defaults() const {
    std::vector<std::string> keys;
    for (const std::string& key : asked_)
        if (!places_.contains(key)) keys.push_back(key);
    return keys;
}

std::vector<Finding> Report::findings() const {
    std::vector<Finding> sorted = findings_;
    std::stable_sort(sorted.begin(), sorted.end(), [](const Finding& a, const Finding& b) {
        return std::pair(a.line, a.column) < std::pair(b.line, b.column);
    });
    return sorted;
}

std::string Finding::text() const {
    std::string text = file;
    if (line) text += ":" + std::to_string(line) + ":" + std::to_string(column);
    if (!fatal) text += ": warning";
    if (!key.empty()) text += ": " + key;
    return text + ": " + message;
}

bool Loaded::usable() const {
    return std::none_of(findings.begin(), findings.end(), [](const Finding& finding) { return finding.fatal; });
}

}  // namespace postern::config
