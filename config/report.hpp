// What was found wrong, and where in the file each value stands, so that checks that come after parsing can still point at it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.hpp"

namespace postern::config {

class Report {
public:
    struct Place {
        uint32_t line = 0, column = 0;
    };

    explicit Report(std::string file) : file_(std::move(file)) {}

    // Keys are paths: "limits.recipients", "route[1].domains[0]".  A key without a place is reported at the place of the
    // nearest thing that it is part of.
    void place(const std::string& key, Place at) { places_[key] = at; }
    // Every key that may be written is asked for; those without a place were left to their defaults.
    void ask(const std::string& key) { asked_.insert(key); }
    std::vector<std::string> left_to_defaults() const;
    void mistake(const std::string& key, std::string message) { add(true, key, std::move(message)); }
    void warning(const std::string& key, std::string message) { add(false, key, std::move(message)); }
    void mistake_at(Place at, const std::string& key, std::string message);

    // A syntax error: there is nothing to check further.
    void not_toml(Place at, std::string message);
    bool unreadable() const { return unreadable_; }

    // Whether `key`, or something inside it, has a mistake: then what follows from its value is not worth a second one.
    bool mistaken(std::string_view key) const;

    // In the order of the file.
    std::vector<Finding> findings() const;

private:
    void add(bool fatal, const std::string& key, std::string message);

    std::string file_;
    std::map<std::string, Place> places_;
    std::set<std::string> asked_;
    std::vector<Finding> findings_;
    bool unreadable_ = false;
};

}  // namespace postern::config
