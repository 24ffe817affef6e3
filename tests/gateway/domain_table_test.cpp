#include "gateway/policy/domain_table.hpp"

#include <catch2/catch.hpp>

using postern::gateway::DomainTable;

TEST_CASE("An exact domain goes before the longest suffix, and that before the star", "[gateway][policy]") {
    DomainTable table;
    table.add("*", 0);
    table.add(".example.org", 1);
    table.add(".b.example.org", 2);
    table.add("a.b.example.org", 3);
    struct Row {
        const char* domain;
        uint32_t value;
    };
    for (const Row row : {Row{"a.b.example.org", 3}, {"x.b.example.org", 2}, {"x.a.b.example.org", 2}, {"b.example.org", 1},
                          {"x.example.org", 1}, {"example.org", 0}, {"xexample.org", 0}, {"org", 0}, {"[192.0.2.1]", 0}, {"", 0}}) {
        INFO(row.domain);
        CHECK(table.find(row.domain) == row.value);
    }
}

TEST_CASE("Without a star, what no pattern names is not found", "[gateway][policy]") {
    DomainTable table;
    CHECK(table.empty());
    CHECK_FALSE(table.find("example.org"));
    table.add(".example.org", 1);
    table.add("example.net", 2);
    CHECK_FALSE(table.empty());
    for (const char* domain : {"example.org", "badexample.org", "x.example.net", "org", "", "."}) {
        INFO(domain);
        CHECK_FALSE(table.find(domain));
    }
}

TEST_CASE("The first value given for a pattern stays", "[gateway][policy]") {
    DomainTable table;
    for (const char* pattern : {"*", ".example.org", "example.net"}) {
        table.add(pattern, 1);
        table.add(pattern, 2);
    }
    CHECK(table.find("elsewhere.test") == 1u);
    CHECK(table.find("x.example.org") == 1u);
    CHECK(table.find("example.net") == 1u);
}
