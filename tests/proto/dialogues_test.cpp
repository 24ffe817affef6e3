// Plays every scenario of tests/dialogues/ whole, octet by octet, and split at random.
#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>
#include <random>

#include "ring/base/random.hpp"
#include "tests/proto/dialogue.hpp"

using namespace postern;
using namespace postern::proto;
using namespace postern::proto::test;

namespace {

std::filesystem::path dialogues() { return std::filesystem::path(__FILE__).parent_path().parent_path() / "dialogues"; }

std::vector<std::filesystem::path> files() {
    std::vector<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::directory_iterator(dialogues()))
        if (entry.path().extension() == ".smtp") found.push_back(entry.path());
    std::sort(found.begin(), found.end());
    return found;
}

uint64_t seed_of_this_run() {
    if (const char* given = std::getenv("POSTERN_TEST_SEED")) return std::strtoull(given, nullptr, 10);
    return std::random_device{}();
}

void expect_replies(const Dialogue& dialogue, const Played& played) {
    const std::vector<std::string> lines = lines_of(played.output);
    for (size_t i = 0; i < std::min(lines.size(), dialogue.replies.size()); ++i) {
        INFO("reply line " << i + 1);
        CHECK(lines[i].substr(0, dialogue.replies[i].size()) == dialogue.replies[i]);
    }
    INFO("all replies:\n" << played.output);
    CHECK(lines.size() == dialogue.replies.size());
}

}  // namespace

TEST_CASE("Each dialogue is answered as its file says", "[proto][dialogue]") {
    REQUIRE(files().size() > 20);
    for (const auto& file : files()) {
        INFO(file.filename().string());
        const Dialogue dialogue = read_dialogue(file);
        const Played played = play(dialogue, [&] { return dialogue.client.size(); });
        expect_replies(dialogue, played);
        CHECK(played.messages == dialogue.messages);
        CHECK(played.closed == dialogue.closed);
        CHECK_FALSE(played.open_at_end);
    }
}

TEST_CASE("Each command gets exactly one reply, and so does each end of data", "[proto][dialogue]") {
    for (const auto& file : files()) {
        INFO(file.filename().string());
        const Dialogue dialogue = read_dialogue(file);
        const Played played = play(dialogue, [&] { return dialogue.client.size(); });
        const size_t unanswered = played.in_data_at_end ? 1 : 0;
        CHECK(played.replies + unanswered == 1 + played.commands + played.data_starts);
    }
}

TEST_CASE("However a dialogue is split, its replies and events are the same", "[proto][dialogue]") {
    const uint64_t seed = seed_of_this_run();
    INFO("POSTERN_TEST_SEED=" << seed);
    Random random(seed);
    for (const auto& file : files()) {
        INFO(file.filename().string());
        const Dialogue dialogue = read_dialogue(file);
        const Played whole = play(dialogue, [&] { return dialogue.client.size(); });
        const auto expect_same = [&](const Played& other) {
            CHECK(other.output == whole.output);
            CHECK(other.log == whole.log);
            CHECK(other.messages == whole.messages);
        };
        expect_same(play(dialogue, [] { return 1; }));
        for (int round = 0; round < 20; ++round) {
            const uint64_t largest = 1 + random.below(round % 2 ? 8 : 200);
            expect_same(play(dialogue, [&] { return 1 + random.below(largest); }));
        }
    }
}
