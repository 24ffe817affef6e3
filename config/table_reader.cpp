#define TOML_IMPLEMENTATION
#include "config/table_reader.hpp"

#include <algorithm>
#include <numeric>

#include "config/values.hpp"

namespace postern::config {
namespace {

Report::Place place_of(const toml::source_region& source) {
    return {static_cast<uint32_t>(source.begin.line), static_cast<uint32_t>(source.begin.column)};
}

std::string_view type_text(toml::node_type type) {
    switch (type) {
        case toml::node_type::table: return "a table";
        case toml::node_type::array: return "an array";
        case toml::node_type::string: return "a string";
        case toml::node_type::integer: return "an integer";
        case toml::node_type::floating_point: return "a fraction";
        case toml::node_type::boolean: return "true or false";
        default: return "a date or time";
    }
}

std::string joined(const auto& words) {
    std::string text;
    for (const auto& word : words) text += (text.empty() ? "" : ", ") + std::string(word);
    return text;
}

// Levenshtein, with one row.
size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 1; i <= a.size(); ++i) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b.size(); ++j) {
            const size_t above = row[j];
            row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
            diagonal = above;
        }
    }
    return row[b.size()];
}

}  // namespace

std::string_view nearest(std::string_view word, const std::vector<std::string>& candidates) {
    std::string_view best;
    size_t best_distance = word.size() / 3 + 2;         // further away than this is another word
    for (const std::string& candidate : candidates) {
        const size_t distance = edit_distance(word, candidate);
        if (distance < best_distance && distance < candidate.size()) {
            best_distance = distance;
            best = candidate;
        }
    }
    return best;
}

TableReader::TableReader(const toml::table& table, std::string path, Report& report)
    : table_(table), path_(std::move(path)), report_(report) {
    if (!path_.empty() && table.source().begin.line) report_.place(path_, place_of(table.source()));
}

std::string TableReader::path_of(std::string_view key) const {
    return path_.empty() ? std::string(key) : path_ + "." + std::string(key);
}

const toml::node* TableReader::find(std::string_view key) {
    known_.emplace_back(key);
    report_.ask(path_of(key));
    const toml::node* node = table_.get(key);
    if (node) report_.place(path_of(key), place_of(node->source()));
    return node;
}

void TableReader::wrong_type(const std::string& path, std::string_view wanted, const toml::node& node) {
    report_.mistake(path, "must be " + std::string(wanted) + ", not " + std::string(type_text(node.type())));
}

const std::string* TableReader::string_at(std::string_view key) {
    const toml::node* node = find(key);
    if (!node) return nullptr;
    if (!node->is_string()) {
        wrong_type(path_of(key), "a string", *node);
        return nullptr;
    }
    return &node->as_string()->get();
}

std::vector<const std::string*> TableReader::strings_at(std::string_view key) {
    const toml::node* node = find(key);
    std::vector<const std::string*> strings;
    if (!node) return strings;
    const toml::array* array = node->as_array();
    if (!array) {
        wrong_type(path_of(key), "an array of strings", *node);
        return strings;
    }
    for (const toml::node& element : *array) {
        const std::string path = path_of(key) + "[" + std::to_string(strings.size()) + "]";
        report_.place(path, place_of(element.source()));
        if (!element.is_string()) wrong_type(path, "a string", element);
        strings.push_back(element.is_string() ? &element.as_string()->get() : nullptr);
    }
    return strings;
}

const toml::table* TableReader::table_at(std::string_view key) {
    const toml::node* node = find(key);
    if (node && !node->is_table()) wrong_type(path_of(key), "a table, [" + path_of(key) + "]", *node);
    return node ? node->as_table() : nullptr;
}

const toml::array* TableReader::tables_at(std::string_view key) {
    const toml::node* node = find(key);
    if (!node) return nullptr;
    const toml::array* array = node->as_array();
    if (array && std::all_of(array->begin(), array->end(), [](const toml::node& one) { return one.is_table(); })) return array;
    wrong_type(path_of(key), "an array of tables, [[" + path_of(key) + "]]", *node);
    return nullptr;
}

void TableReader::text(std::string_view key, std::string& into) {
    if (const std::string* written = string_at(key)) into = *written;
}

void TableReader::flag(std::string_view key, bool& into) {
    const toml::node* node = find(key);
    if (!node) return;
    if (node->is_boolean())
        into = node->as_boolean()->get();
    else
        wrong_type(path_of(key), "true or false", *node);
}

void TableReader::read_integer(std::string_view key, uint64_t& into, uint64_t min, uint64_t max) {
    const toml::node* node = find(key);
    if (!node) return;
    if (!node->is_integer()) return wrong_type(path_of(key), "an integer", *node);
    const int64_t value = node->as_integer()->get();
    if (value < 0 || static_cast<uint64_t>(value) < min || static_cast<uint64_t>(value) > max) {
        report_.mistake(path_of(key), "must be between " + std::to_string(min) + " and " + std::to_string(max) + ", not " +
                                          std::to_string(value));
        return;
    }
    into = static_cast<uint64_t>(value);
}

void TableReader::read_bytes(std::string_view key, uint64_t& into, uint64_t min, uint64_t max) {
    const toml::node* node = find(key);
    if (!node) return;
    uint64_t value = 0;
    if (const auto* integer = node->as_integer()) {
        value = integer->get() < 0 ? 0 : static_cast<uint64_t>(integer->get());
    } else if (const auto* string = node->as_string()) {
        const auto parsed = parse_bytes(string->get());
        if (!parsed) return report_.mistake(path_of(key), parsed.error().text);
        value = *parsed;
    } else {
        return wrong_type(path_of(key), "a size, such as \"64MiB\"", *node);
    }
    if (value < min || value > max) {
        report_.mistake(path_of(key), "must be between " + bytes_text(min) + " and " + bytes_text(max) + ", not " + bytes_text(value));
        return;
    }
    into = value;
}

void TableReader::duration(std::string_view key, Duration& into, Duration min, Duration max) {
    const toml::node* node = find(key);
    if (!node) return;
    if (!node->is_string()) return wrong_type(path_of(key), "a time with its unit, such as \"30s\"", *node);
    const auto parsed = parse_duration(node->as_string()->get());
    if (!parsed) return report_.mistake(path_of(key), parsed.error().text);
    if (*parsed < min || *parsed > max) {
        report_.mistake(path_of(key),
                        "must be between " + duration_text(min) + " and " + duration_text(max) + ", not " + duration_text(*parsed));
        return;
    }
    into = *parsed;
}

void TableReader::not_a_choice(std::string_view key, std::string_view name, const std::vector<std::string_view>& names) {
    report_.mistake(path_of(key), "must be one of " + joined(names) + ", not \"" + std::string(name) + "\"");
}

void TableReader::require(std::string_view key, std::string_view example) {
    if (!table_.contains(key)) report_.mistake(path_of(key), "is missing; write for example " + std::string(key) + " = " + std::string(example));
}

void TableReader::finish() {
    for (const auto& [key, node] : table_) {
        if (std::find(known_.begin(), known_.end(), key.str()) != known_.end()) continue;
        const std::string_view near = nearest(key.str(), known_);
        const std::string what = node.is_table() || node.is_array_of_tables() ? "unknown table" : "unknown key";
        // A table's name may be split over a dotted header; its own place is where the header stands.
        report_.mistake_at(place_of(key.source()), path_of(key.str()),
                           near.empty() ? what + "; known here: " + joined(known_) : what + "; did you mean " + std::string(near) + "?");
    }
}

}  // namespace postern::config
