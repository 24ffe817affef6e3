#include "gateway/delivery/resolver.hpp"

#include <catch2/catch.hpp>
#include <memory>

using namespace postern;

TEST_CASE("A resolve job hands its answer over when it is done, and may be destroyed then", "[gateway][resolver]") {
    struct Owner final : gateway::ResolveEvents {
        std::unique_ptr<gateway::ResolveJob> job;
        ring::Resolution answer;
        void on_resolved(ring::Resolution& resolution) override {
            answer = std::move(resolution);
            job.reset();
        }
    } owner;
    owner.job = std::make_unique<gateway::ResolveJob>("127.0.0.1", 2525, owner);
    owner.job->run();
    CHECK(owner.answer.addresses.empty());
    owner.job->done();
    CHECK(owner.job == nullptr);
    REQUIRE(owner.answer.status == ring::Resolution::Status::found);
    CHECK(owner.answer.addresses.at(0).text() == "127.0.0.1:2525");
}
