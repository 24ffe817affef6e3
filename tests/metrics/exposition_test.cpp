#include "metrics/exposition.hpp"

#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>

using namespace postern;
using namespace postern::metrics;

namespace {

ExpositionNames names() {
    return {.verbs = {"helo", "ehlo", "mail"},
            .stages = {"connect", "rcpt"},
            .routes = {"local", "relay"},
            .version = "0.1.0",
            .build = "Debug",
            .kernel_features = "multishot,\"quoted\""};
}

// Two shards, and what is shown of them.
struct Gateway {
    ShardMetrics first{2, true}, second{2, true};
    bool ready = true;
    int64_t wall_seconds = 1'000'000;
    Exposition exposition{names(), {&first, &second}, [this] { return ready; }, [this] { return wall_seconds; }};

    std::vector<std::string> lines() const {
        std::vector<std::string> lines;
        std::istringstream text(exposition.text());
        for (std::string line; std::getline(text, line);) lines.push_back(line);
        return lines;
    }
    // The value of a sample, as it is written; "absent" when it is not there.
    std::string operator[](const std::string& sample) const {
        for (const std::string& line : lines())
            if (line.starts_with(sample + " ")) return line.substr(sample.size() + 1);
        return "absent";
    }
};

std::string readme() {
    std::ifstream file(std::filesystem::path(__FILE__).parent_path() / "../../metrics/README.md");
    REQUIRE(file);
    return {std::istreambuf_iterator<char>(file), {}};
}

struct ReadmeRow {
    std::string type, unit, labels, meaning;
};
// | `name` | type | unit | labels | meaning |
std::map<std::string, ReadmeRow> readme_rows() {
    std::map<std::string, ReadmeRow> rows;
    std::istringstream text(readme());
    for (std::string line; std::getline(text, line);) {
        if (!line.starts_with("| `postern_")) continue;
        std::vector<std::string> cells;
        std::istringstream row(line.substr(1));
        for (std::string cell; std::getline(row, cell, '|');) {
            const size_t first = cell.find_first_not_of(' ');
            cells.push_back(first == cell.npos ? "" : cell.substr(first, cell.find_last_not_of(' ') - first + 1));
        }
        INFO(line);
        REQUIRE(cells.size() == 5);
        const std::string name = cells[0].substr(1, cells[0].size() - 2);
        CHECK(rows.emplace(name, ReadmeRow{cells[1], cells[2], cells[3], cells[4]}).second);
    }
    return rows;
}

// The label names of a family's samples, `le` apart: "`a`, `b`".
std::string labels_shown(const std::vector<std::string>& lines, const std::string& family) {
    for (const std::string& line : lines) {
        const std::string name = line.substr(0, line.find_first_of("{ "));
        if (name != family && name != family + "_count") continue;
        std::string labels;
        for (size_t at = line.find('{'); at != line.npos; at = line.find("\",", at + 1)) {
            const size_t begin = at + (line[at] == '{' ? 1 : 2);
            labels += (labels.empty() ? "`" : ", `") + line.substr(begin, line.find('=', begin) - begin) + "`";
        }
        return labels;
    }
    return "not shown";
}

}  // namespace

TEST_CASE("What two shards count is shown as one sum", "[metrics]") {
    Gateway gateway;
    gateway.first.message_received(3000, 2);
    gateway.second.message_received(500, 1);
    gateway.first.reply(1, 250);
    gateway.second.reply(1, 250);
    gateway.second.reply(1, 550);
    gateway.second.command(2);
    gateway.first.refused(Refusal::relay);
    gateway.second.route(1).recipients[static_cast<size_t>(DeliveryOutcome::deferred)].add(7);
    gateway.first.read_from_memory(10);
    gateway.second.status.connections_open.set(5);
    gateway.first.status.connections_open.set(6);
    CHECK(gateway["postern_messages_received_total"] == "2");
    CHECK(gateway["postern_received_bytes_total"] == "3500");
    CHECK(gateway["postern_recipients_received_total"] == "3");
    CHECK(gateway["postern_replies_total{stage=\"rcpt\",class=\"2xx\"}"] == "2");
    CHECK(gateway["postern_replies_total{stage=\"rcpt\",class=\"5xx\"}"] == "1");
    CHECK(gateway["postern_replies_total{stage=\"connect\",class=\"2xx\"}"] == "0");
    CHECK(gateway["postern_commands_total{verb=\"mail\"}"] == "1");
    CHECK(gateway["postern_refusals_total{reason=\"relay\"}"] == "1");
    CHECK(gateway["postern_route_recipients_total{route=\"relay\",outcome=\"deferred\"}"] == "7");
    CHECK(gateway["postern_spool_read_bytes_total{from=\"memory\"}"] == "10");
    CHECK(gateway["postern_connections_open"] == "11");
    CHECK(gateway["postern_shards"] == "2");
}

TEST_CASE("A histogram is shown with round bounds in base units", "[metrics]") {
    Gateway gateway;
    gateway.first.message_committed(microseconds(90));
    gateway.second.message_committed(microseconds(400));
    gateway.second.message_committed(seconds(20));
    CHECK(gateway["postern_commit_wait_seconds_bucket{le=\"0.0001\"}"] == "1");
    CHECK(gateway["postern_commit_wait_seconds_bucket{le=\"0.00025\"}"] == "1");
    CHECK(gateway["postern_commit_wait_seconds_bucket{le=\"0.0005\"}"] == "2");
    CHECK(gateway["postern_commit_wait_seconds_bucket{le=\"10\"}"] == "2");
    CHECK(gateway["postern_commit_wait_seconds_bucket{le=\"+Inf\"}"] == "3");
    CHECK(gateway["postern_commit_wait_seconds_count"] == "3");
    CHECK(gateway["postern_commit_wait_seconds_sum"] == "20.00049");
    CHECK(gateway["postern_route_queue_time_seconds_bucket{route=\"local\",le=\"432000\"}"] == "0");
}

TEST_CASE("A flag holds for the process only when it holds for every shard", "[metrics]") {
    Gateway gateway;
    gateway.first.status.spool_healthy.set(1);
    CHECK(gateway["postern_spool_healthy"] == "0");
    gateway.second.status.spool_healthy.set(1);
    CHECK(gateway["postern_spool_healthy"] == "1");
    CHECK(gateway["postern_ready"] == "1");
    gateway.ready = false;
    CHECK(gateway["postern_ready"] == "0");
}

TEST_CASE("The age of the oldest message is that of the oldest shard's", "[metrics]") {
    Gateway gateway;
    const std::string age = "postern_spool_oldest_message_age_seconds";
    CHECK(gateway[age] == "0");
    gateway.first.status.spool_oldest_received_seconds.set(999'000);
    CHECK(gateway[age] == "1000");
    gateway.second.status.spool_oldest_received_seconds.set(999'900);
    CHECK(gateway[age] == "1000");
    gateway.wall_seconds = 900'000;                         // the clock was set back
    CHECK(gateway[age] == "0");
}

TEST_CASE("Metrics of single messages stay at zero when they are switched off", "[metrics]") {
    ShardMetrics shard(0, false);
    shard.message_received(3000, 2);
    shard.message_committed(seconds(1));
    shard.command(0);
    shard.reply(0, 250);
    shard.batch_committed(3, 1000, milliseconds(1));
    CHECK(shard.messages_in.value() == 0);
    CHECK(shard.commands[0].value() == 0);
    CHECK(shard.replies[0][0].value() == 0);
    CHECK(shard.batch_messages.sum() == 3);                 // of batches, not of messages
}

TEST_CASE("The build is described by labels, whose values are escaped", "[metrics]") {
    CHECK(Gateway()[R"(postern_build_info{version="0.1.0",build="Debug",features="multishot,\"quoted\""})"] == "1");
}

TEST_CASE("Every metric is shown from the start, with zero, under each value of its labels", "[metrics]") {
    const Gateway gateway;
    const std::vector<std::string> lines = gateway.lines();
    std::set<std::string> shown;
    size_t refusals = 0, recipients = 0;
    for (const std::string& line : lines) {
        if (line.starts_with("# TYPE ")) shown.insert(line.substr(7, line.find(' ', 7) - 7));
        refusals += line.starts_with("postern_refusals_total{");
        recipients += line.starts_with("postern_route_recipients_total{");
    }
    CHECK(refusals == static_cast<size_t>(Refusal::count));
    CHECK(recipients == 2 * static_cast<size_t>(DeliveryOutcome::count));
    std::set<std::string> described;
    for (const MetricDescription& metric : described_metrics()) {
        CHECK(described.insert(metric.name).second);
        INFO(metric.name);
        CHECK(labels_shown(lines, metric.name) != "not shown");
    }
    CHECK(shown == described);
}

TEST_CASE("metrics/README.md lists every metric as it is, and no other", "[metrics]") {
    const std::vector<std::string> lines = Gateway().lines();
    const auto rows = readme_rows();
    std::set<std::string> described;
    for (const MetricDescription& metric : described_metrics()) {
        INFO(metric.name);
        described.insert(metric.name);
        const auto row = rows.find(metric.name);
        if (row == rows.end()) {
            FAIL_CHECK("not in metrics/README.md");
            continue;
        }
        CHECK(row->second.type == metric.type);
        CHECK(row->second.meaning == metric.help);
        CHECK(row->second.labels == labels_shown(lines, metric.name));
        if (metric.name.find("_seconds") != metric.name.npos) CHECK(row->second.unit == "seconds");
        if (metric.name.find("_bytes") != metric.name.npos) CHECK(row->second.unit == "octets");
        CHECK_FALSE(row->second.unit.empty());
    }
    for (const auto& [name, row] : rows) {
        INFO(name << " is in metrics/README.md only");
        CHECK(described.contains(name));
    }
}

TEST_CASE("promtool finds nothing to say about the text", "[metrics]") {
    if (std::system("command -v promtool >/dev/null") != 0) {
        WARN("skipped: promtool is not installed (apt install prometheus)");
        return;
    }
    const Gateway gateway;
    const auto said = std::filesystem::temp_directory_path() / ("promtool-" + std::to_string(Catch::rngSeed()) + "-" + std::to_string(getpid()));
    FILE* promtool = popen(("promtool check metrics >" + said.string() + " 2>&1").c_str(), "w");
    REQUIRE(promtool);
    const std::string text = gateway.exposition.text();
    REQUIRE(fwrite(text.data(), 1, text.size(), promtool) == text.size());
    const int status = pclose(promtool);
    std::ifstream file(said);
    INFO(std::string(std::istreambuf_iterator<char>(file), {}));
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
    std::filesystem::remove(said);
}
