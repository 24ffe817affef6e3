#include "proto/envelope.hpp"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <random>

#include "ring/base/random.hpp"

using namespace postern;
using namespace postern::proto;

namespace {

Envelope filled() {
    Envelope envelope;
    envelope.set_sender("s@remote.test");
    envelope.add_recipient("r@local.test");
    envelope.add_recipient("\"a@b\"@local.test");
    envelope.body = BodyType::eight_bit_mime;
    envelope.smtputf8 = true;
    envelope.declared_bytes = 0x0102030405060708;
    return envelope;
}

std::string stored(const Envelope& envelope) {
    std::string out;
    envelope.encode(out);
    return out;
}

}  // namespace

TEST_CASE("An envelope comes back from its stored form", "[proto][envelope]") {
    const auto decoded = Envelope::decode(stored(filled()));
    REQUIRE(decoded);
    CHECK(decoded->sender() == "s@remote.test");
    REQUIRE(decoded->recipient_count() == 2);
    CHECK(decoded->recipient(0) == "r@local.test");
    CHECK(decoded->recipient(1) == "\"a@b\"@local.test");
    CHECK(decoded->body == BodyType::eight_bit_mime);
    CHECK(decoded->smtputf8);
    CHECK(decoded->declared_bytes == 0x0102030405060708);
    CHECK(decoded->find_recipient("r@LOCAL.test") == 0);
}

TEST_CASE("The stored form is what the README says", "[proto][envelope]") {
    using namespace std::string_literals;
    Envelope envelope;
    envelope.set_sender("a@b");
    envelope.add_recipient("c@d");
    CHECK(stored(envelope) == "\x01\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\x03\0\x03\0a@bc@d"s);
}

TEST_CASE("The null sender and no recipients can be stored", "[proto][envelope]") {
    const auto decoded = Envelope::decode(stored(Envelope{}));
    REQUIRE(decoded);
    CHECK(decoded->sender().empty());
    CHECK(decoded->recipient_count() == 0);
}

TEST_CASE("Every truncation and extension of a stored envelope is refused", "[proto][envelope]") {
    const std::string octets = stored(filled());
    for (size_t bytes = 0; bytes < octets.size(); ++bytes) CHECK_FALSE(Envelope::decode(octets.substr(0, bytes)));
    CHECK_FALSE(Envelope::decode(octets + "x"));
}

TEST_CASE("What decodes is exactly what would be encoded again", "[proto][envelope]") {
    const uint64_t seed = std::getenv("POSTERN_TEST_SEED")
                              ? std::strtoull(std::getenv("POSTERN_TEST_SEED"), nullptr, 10)
                              : std::random_device{}();
    INFO("POSTERN_TEST_SEED=" << seed);
    Random random(seed);
    const std::string octets = stored(filled());
    size_t refused = 0;
    for (int round = 0; round < 20000; ++round) {
        std::string mutated = octets;
        for (uint64_t changes = 1 + random.below(3); changes > 0; --changes)
            mutated[random.below(round % 2 ? 22 : mutated.size())] = static_cast<char>(random.next());
        const auto decoded = Envelope::decode(mutated);
        if (decoded) {
            REQUIRE(stored(*decoded) == mutated);
        } else {
            ++refused;
        }
    }
    CHECK(refused > 5000);
}

TEST_CASE("Recipients are equal when the domain is, without case, and the local part exactly", "[proto][envelope]") {
    const Envelope envelope = filled();
    CHECK(envelope.find_recipient("r@local.TEST") == 0);
    CHECK(envelope.find_recipient("R@local.test") == -1);
    CHECK(envelope.find_recipient("\"a@b\"@LOCAL.test") == 1);
    CHECK(envelope.find_recipient("\"A@b\"@local.test") == -1);
    CHECK(envelope.find_recipient("other@local.test") == -1);
}

TEST_CASE("A cleared envelope is empty and keeps no large arena", "[proto][envelope]") {
    Envelope envelope = filled();
    for (int i = 0; i < 5000; ++i) envelope.add_recipient("recipient-with-a-long-name@local.test");
    envelope.clear();
    CHECK(envelope.sender().empty());
    CHECK(envelope.recipient_count() == 0);
    CHECK(envelope.body == BodyType::seven_bit);
    CHECK_FALSE(envelope.smtputf8);
    CHECK(envelope.declared_bytes == 0);
    CHECK(envelope.capacity() < 16 * 1024);
}

TEST_CASE("The domain of an address is behind its last @", "[proto][envelope]") {
    CHECK(domain_of("r@local.test") == "local.test");
    CHECK(domain_of("\"a@b\"@local.test") == "local.test");
    CHECK(domain_of("postmaster").empty());
    CHECK(domain_of("").empty());
}
