#include "gateway/exit_codes.hpp"

#include <catch2/catch.hpp>

#include <filesystem>
#include <regex>
#include <set>

#include "tests/support/temp_directory.hpp"

using Codes = std::multiset<int>;

namespace {

// The numbers that the expression's first group finds in a file of the source tree.
Codes codes_in(const std::string& file, const char* expression) {
    const auto root = std::filesystem::path(__FILE__).parent_path() / "../..";
    const std::string text = postern::test::content_of(root / file);
    const std::regex pattern(expression, std::regex::ECMAScript | std::regex::multiline);
    Codes codes;
    for (std::sregex_iterator at(text.begin(), text.end(), pattern), end; at != end; ++at) codes.insert(std::stoi((*at)[1]));
    return codes;
}

}  // namespace

TEST_CASE("README.md lists every exit code once, and no other", "[gateway]") {
    const Codes defined = codes_in("gateway/exit_codes.hpp", R"(^\s+exit_\w+ = (\d+),)");
    const Codes listed = codes_in("README.md", R"(^\| (\d+) \|)");
    CHECK(defined.size() == std::set<int>(defined.begin(), defined.end()).size());
    CHECK(defined == listed);
    CHECK(defined.contains(postern::gateway::exit_spool_damaged));
}
