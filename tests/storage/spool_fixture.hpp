// A small language for tests of the spool: a scratch folder, a spool with its loop and workers, messages by size.
#pragma once

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ring/base/random.hpp"
#include "ring/clock.hpp"
#include "storage/spool.hpp"
#include "storage/spool_impl.hpp"
#include "storage/verify.hpp"

namespace postern::storage {

class ScratchFolder {
public:
    explicit ScratchFolder(const std::string& base = disk()) {
        std::string pattern = base + "/postern-spool-XXXXXX";
        REQUIRE(::mkdtemp(pattern.data()));
        path_ = pattern;
    }
    ScratchFolder(const ScratchFolder&) = delete;
    ~ScratchFolder() { std::filesystem::remove_all(path_); }
    const std::string& path() const { return path_; }
    std::string operator/(const std::string& name) const { return path_ + "/" + name; }

    static std::string disk() { return std::filesystem::current_path().string(); }     // the build folder: a real disk
    static std::string memory() { return "/dev/shm"; }

private:
    std::string path_;
};

inline std::string octets_of_size(size_t bytes, uint64_t seed = 1) {
    Random random(seed * 7919 + bytes);
    std::string octets(bytes, '\0');
    for (size_t i = 0; i < bytes; ++i) octets[i] = static_cast<char>(random.next() >> 32);
    return octets;
}

struct CountingProbe final : SpoolProbe {
    void message_committed(uint64_t, Duration) override { ++messages; }
    void batch_committed(uint32_t, uint64_t octets, Duration) override { ++batches, bytes += octets; }
    void batch_failed(int error) override { ++failed, last_error = error; }
    void results_recorded(uint32_t count) override { results += count; }
    void fragment_spilled(uint64_t) override { ++fragments; }
    void segment_recycled() override { ++recycled; }
    void damage_found(uint64_t frames) override { damage += frames; }
    void read_from_memory(uint64_t) override { ++from_memory; }
    void read_from_disk(uint64_t) override { ++from_disk; }
    uint64_t messages = 0, batches = 0, bytes = 0, failed = 0, results = 0, fragments = 0, recycled = 0, damage = 0;
    uint64_t from_memory = 0, from_disk = 0;
    int last_error = 0;
};

// A message on its way in.
struct Delivery final : CommitWaiter {
    explicit Delivery(Spool& spool) : writer(spool) {}
    void on_committed(Result<MessageIndex, SpoolError> result) override {
        CHECK_FALSE(outcome.has_value());
        outcome = result;
        if (then) then();
    }
    MessageWriter writer;
    std::string body;           // the writer holds slices of it by reference
    std::optional<Result<MessageIndex, SpoolError>> outcome;
    std::function<void()> then;
};

struct Stored {
    std::string body;
    std::string envelope;
    MessageAttributes attributes;
    bool operator==(const std::string& expected) const { return body == expected; }
};

class SpoolUnderTest final : private MessageReaderHandler {
public:
    explicit SpoolUnderTest(const std::string& path, SpoolConfig wanted = {}) : config(std::move(wanted)) {
        ring::RingConfig ring_config;
        ring_config.receive_buffers = 16;
        ring_config.staging_bytes = staging_bytes;
        auto made = ring::Ring::create(ring_config);
        REQUIRE(made);
        loop = std::make_unique<ring::Loop>(std::move(*made));
        workers = std::make_unique<ring::Workers>("house", 1);
        config.housekeeping_loop = workers->attach(*loop);
        workers->start();
        auto opened = open_directory(path);
        if (!opened) FAIL(opened.error().error.text);
        directory = std::move(*opened);
        auto result = Spool::open(*loop, *workers, directory, config, probe);
        if (!result) FAIL(result.error().error.text);
        owned = std::move(*result);
        owned->for_each_recovered([&](const RecoveredMessage& message) { recovered.push_back(message); });
    }

    Spool& spool() { return *owned; }
    Spool::Impl& impl() { return owned->impl(); }

    template <class Condition>
    bool eventually(Condition&& condition, Duration limit = seconds(20)) {
        const Monotonic deadline = ring::monotonic_now() + limit;
        while (!condition()) {
            if (ring::monotonic_now() > deadline) return false;
            loop->run_turn(milliseconds(20));
        }
        return true;
    }
    bool flush() { return eventually([&] { return owned->flushed(); }); }

    // In slices of 16 KiB, settled after each `settle_every`, as a session would.
    void send(Delivery& delivery, const std::string& octets, QueueId id, size_t settle_every = 4) {
        const std::string& body = delivery.body = octets;
        REQUIRE(delivery.writer.begin(id));
        size_t count = 0;
        for (size_t at = 0; at < body.size(); at += 16_KiB) {
            const auto result = delivery.writer.append(std::string_view(body).substr(at, 16_KiB));
            if (!result) return;
            if (++count % settle_every == 0) delivery.writer.settle();
            while (owned->congested()) loop->run_turn(milliseconds(5));
        }
    }
    void commit(Delivery& delivery, const std::string& envelope = "<envelope>", uint32_t recipients = 1) {
        delivery.writer.commit(envelope, {loop->wall(), 0, recipients, 7}, delivery);
    }
    Result<MessageIndex, SpoolError> try_store(const std::string& body, const std::string& envelope = "<envelope>",
                                               uint32_t recipients = 1) {
        Delivery delivery(*owned);
        send(delivery, body, owned->next_id());
        commit(delivery, envelope, recipients);
        REQUIRE(eventually([&] { return delivery.outcome.has_value(); }));
        return *delivery.outcome;
    }
    MessageIndex store(const std::string& body, const std::string& envelope = "<envelope>", uint32_t recipients = 1) {
        const auto outcome = try_store(body, envelope, recipients);
        REQUIRE(outcome);
        return *outcome;
    }

    std::optional<Stored> try_read(MessageIndex message) {
        MessageReader reader(*owned, *this);
        Stored stored;
        bool open = false;
        for (;;) {
            readable_ = false;
            std::string_view octets;
            const auto status = open ? reader.next(octets) : reader.open(message);
            switch (status) {
                case MessageReader::Status::ready:
                    if (!open) {
                        open = true;
                        stored.envelope = reader.envelope();
                        stored.attributes = reader.attributes();
                    } else {
                        CHECK(octets.size() <= 256_KiB);
                        stored.body += octets;
                    }
                    break;
                case MessageReader::Status::pending: REQUIRE(eventually([&] { return readable_; })); break;
                case MessageReader::Status::end: return stored;
                case MessageReader::Status::failed: return std::nullopt;
            }
        }
    }
    Stored read(MessageIndex message) {
        auto stored = try_read(message);
        REQUIRE(stored.has_value());
        return *stored;
    }
    std::string read_by_worker(MessageIndex message) {
        std::string body;
        const auto result = owned->stored(message).read([&](std::string_view octets) {
            body += octets;
            return true;
        });
        if (!result) FAIL(result.error().text);
        return body;
    }

    bool deliver(MessageIndex message, uint32_t recipient = 0) {
        return record(
            message, {.recipient = recipient, .outcome = RecipientOutcome::delivered, .attempt = 1, .reply_code = 250});
    }
    bool record(MessageIndex message, const RecipientResult& result) { return owned->record(message, {&result, 1}); }

    static inline uint64_t staging_bytes = 16_MiB;
    SpoolConfig config;
    CountingProbe probe;
    std::unique_ptr<ring::Loop> loop;
    std::unique_ptr<ring::Workers> workers;
    SpoolDirectory directory;
    std::unique_ptr<Spool> owned;
    std::vector<RecoveredMessage> recovered;

private:
    void on_readable() override { readable_ = true; }
    bool readable_ = false;
};

// What the disk holds at this moment, as a machine that lost power would find it.  Housekeeping may rename meanwhile.
inline void crash_image(const std::string& from, const std::string& to) {
    std::error_code vanished;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(from)) {
        const auto target = to / std::filesystem::relative(entry.path(), from);
        if (entry.is_directory()) std::filesystem::create_directories(target);
        else if (std::filesystem::create_directories(target.parent_path()); true)
            std::filesystem::copy_file(entry.path(), target, vanished);
    }
}

inline SpoolConfig small_segments(uint64_t bytes = 4_MiB) {
    SpoolConfig config;
    config.segment_bytes = bytes;
    config.reserve_bytes = 0;
    return config;
}

inline std::vector<std::string> segment_paths(const std::string& spool) {
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(spool))
        if (entry.path().extension() == ".seg") paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    return paths;
}
inline void overwrite(const std::string& path, uint64_t offset, std::string_view octets) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(offset));
    file.write(octets.data(), static_cast<std::streamsize>(octets.size()));
    REQUIRE(file.good());
}

}  // namespace postern::storage
