// Reads one TOML table key by key, with types, units and ranges, and remembers which keys it was asked for: what is in the
// table and was never asked for is an unknown key.  Nothing throws; every mistake goes to the Report and leaves the
// default in place.
#pragma once

#include <concepts>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.hpp"
#include "config/report.hpp"
#include "config/toml.hpp"

namespace postern::config {

class TableReader {
public:
    TableReader(const toml::table& table, std::string path, Report& report);

    void text(std::string_view key, std::string& into);
    void flag(std::string_view key, bool& into);
    void bytes(std::string_view key, std::unsigned_integral auto& into, uint64_t min, uint64_t max) {
        uint64_t value = into;
        read_bytes(key, value, min, max);
        into = static_cast<std::remove_reference_t<decltype(into)>>(value);
    }
    void integer(std::string_view key, std::unsigned_integral auto& into, uint64_t min, uint64_t max) {
        uint64_t value = into;
        read_integer(key, value, min, max);
        into = static_cast<std::remove_reference_t<decltype(into)>>(value);
    }
    void duration(std::string_view key, Duration& into, Duration min, Duration max);

    template <class Value>
    struct Choice {
        std::string_view name;
        Value value;
    };
    template <class Value>
    void choice(std::string_view key, Value& into, std::initializer_list<Choice<Value>> choices) {
        const std::string* name = string_at(key);
        if (!name) return;
        std::vector<std::string_view> names;
        for (const Choice<Value>& one : choices) {
            if (one.name == *name) {
                into = one.value;
                return;
            }
            names.push_back(one.name);
        }
        not_a_choice(key, *name, names);
    }

    // A string that `parse` turns into a Result<Value>.
    template <class Value, class Parse>
    void parsed(std::string_view key, Value& into, Parse&& parse) {
        if (const std::string* written = string_at(key)) take(path_of(key), into, parse(std::string_view(*written)));
    }
    // An array of such strings, appended to `into`.
    template <class Value, class Parse>
    void list(std::string_view key, std::vector<Value>& into, Parse&& parse) {
        size_t index = 0;
        for (const std::string* written : strings_at(key)) {
            Value value{};
            if (written && take(path_of(key) + "[" + std::to_string(index) + "]", value, parse(std::string_view(*written))))
                into.push_back(std::move(value));
            ++index;
        }
    }
    // Says that it is missing when it is.
    void require(std::string_view key, std::string_view example);

    // `read(reader)` for the table `key`, if it is there.
    template <class Read>
    void table(std::string_view key, Read&& read) {
        static const toml::table empty;
        const toml::table* inner = table_at(key);
        TableReader reader(inner ? *inner : empty, path_of(key), report_);
        read(reader);
        reader.finish();
    }
    // `read(reader)` for each table of the array `key`.
    template <class Read>
    void tables(std::string_view key, Read&& read) {
        const toml::array* array = tables_at(key);
        if (!array) return;
        for (size_t index = 0; index < array->size(); ++index) {
            TableReader reader(*array->get(index)->as_table(), path_of(key) + "[" + std::to_string(index) + "]", report_);
            read(reader);
            reader.finish();
        }
    }
    // Reports the unknown keys.
    void finish();

private:
    template <class Value>
    bool take(const std::string& path, Value& into, Result<Value>&& parsed) {
        if (!parsed) {
            report_.mistake(path, parsed.error().text);
            return false;
        }
        into = std::move(*parsed);
        return true;
    }
    std::string path_of(std::string_view key) const;
    const toml::node* find(std::string_view key);           // and notes it as known
    const std::string* string_at(std::string_view key);
    std::vector<const std::string*> strings_at(std::string_view key);      // null: reported already
    const toml::table* table_at(std::string_view key);
    const toml::array* tables_at(std::string_view key);
    void read_integer(std::string_view key, uint64_t& into, uint64_t min, uint64_t max);
    void read_bytes(std::string_view key, uint64_t& into, uint64_t min, uint64_t max);
    void not_a_choice(std::string_view key, std::string_view name, const std::vector<std::string_view>& names);
    void wrong_type(const std::string& path, std::string_view wanted, const toml::node& node);

    const toml::table& table_;
    std::string path_;
    Report& report_;
    std::vector<std::string> known_;
};

// The candidate with the smallest edit distance, or "" when none is near enough to be meant.
std::string_view nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace postern::config
