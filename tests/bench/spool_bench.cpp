// How fast the spool commits: messages of one size through Loop and Spool, with each sink, by a number of writers that each
// have one message on its way.
//
//     spool_bench FOLDER [BYTES [MESSAGES [WRITERS]]]            commits
//     spool_bench FOLDER recover [BYTES [MESSAGES]]              fills a spool, then times opening it with a cold cache
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

#include "ring/clock.hpp"
#include "storage/spool.hpp"

using namespace postern;
using namespace postern::storage;

namespace {

struct NoProbe final : SpoolProbe {
    void message_committed(uint64_t, Duration) override {}
    void batch_committed(uint32_t, uint64_t, Duration) override { ++batches; }
    void batch_failed(int error) override { std::fprintf(stderr, "batch failed: %d\n", error); }
    void results_recorded(uint32_t) override {}
    void fragment_spilled(uint64_t) override {}
    void segment_recycled() override {}
    void damage_found(uint64_t) override {}
    void read_from_memory(uint64_t) override {}
    void read_from_disk(uint64_t) override {}
    uint64_t batches = 0;
};

double cpu_seconds() {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

struct Bench {
    Bench(const std::string& path, SinkChoice sink) {
        ring::RingConfig ring_config;
        ring_config.receive_buffers = 16;
        ring_config.staging_bytes = 16_MiB;
        auto ring = ring::Ring::create(ring_config);
        if (!ring) throw std::runtime_error(ring.error().error.text);
        loop = std::make_unique<ring::Loop>(std::move(*ring));
        workers = std::make_unique<ring::Workers>("house", 1);
        SpoolConfig config;
        config.sink = sink;
        config.spare_segments = 4;
        config.housekeeping_loop = workers->attach(*loop);
        workers->start();
        auto opened = open_directory(path);
        if (!opened) throw std::runtime_error(opened.error().error.text);
        directory = std::move(*opened);
        auto made = Spool::open(*loop, *workers, directory, config, probe);
        if (!made) throw std::runtime_error(made.error().error.text);
        spool = std::move(*made);
    }
    NoProbe probe;
    std::unique_ptr<ring::Loop> loop;
    std::unique_ptr<ring::Workers> workers;
    SpoolDirectory directory;
    std::unique_ptr<Spool> spool;
};

// Sends its next message as soon as the last one is durable, and stops while the spool is congested, as a session does.
struct Writer final : CommitWaiter, Spool::Relief {
    Writer(Bench& of, const std::string& octets, size_t& to_send, size_t& to_finish, bool deliver)
        : bench(of), writer(*of.spool), body(octets), left(to_send), unfinished(to_finish), delivers(deliver) {}
    void send() {
        if (left == 0) return;
        --left;
        if (!writer.begin(bench.spool->next_id())) return fail_run("refused");
        at = 0;
        go_on();
    }
    void on_relieved() override { go_on(); }
    void go_on() {
        for (; at < body.size(); at += 16_KiB) {
            if (bench.spool->congested()) return bench.spool->wait_for_relief(*this);
            if (!writer.append(std::string_view(body).substr(at, 16_KiB))) return fail_run("append failed");
            if (body.size() > 16_KiB) writer.settle();
        }
        writer.commit("sender@example.org recipient@example.org", {bench.loop->wall(), 0, 1, 0}, *this);
    }
    void on_committed(Result<MessageIndex, SpoolError> outcome) override {
        if (!outcome) return fail_run("not committed");
        --unfinished;
        if (delivers) {
            const RecipientResult result{
                .recipient = 0, .outcome = RecipientOutcome::delivered, .attempt = 1, .reply_code = 250};
            bench.spool->record(*outcome, {&result, 1});
        }
        send();
    }
    void fail_run(const char* why) {
        std::fprintf(stderr, "%s\n", why);
        std::exit(1);
    }
    Bench& bench;
    MessageWriter writer;
    const std::string& body;
    size_t& left;
    size_t& unfinished;
    bool delivers;
    size_t at = 0;
};

void run(Bench& bench, const std::string& body, size_t messages, size_t writer_count, bool deliver) {
    size_t left = messages, unfinished = messages;
    std::vector<std::unique_ptr<Writer>> writers;
    for (size_t i = 0; i < writer_count; ++i)
        writers.push_back(std::make_unique<Writer>(bench, body, left, unfinished, deliver));
    for (auto& writer : writers) writer->send();
    while (unfinished > 0) bench.loop->run_turn(milliseconds(10));
    while (!bench.spool->flushed()) bench.loop->run_turn(milliseconds(10));
}

int bench_commits(const std::string& folder, size_t bytes, size_t messages, size_t writers) {
    const std::string body(bytes, 'm');
    std::printf("%-9s %8s %8s %8s %10s %9s %12s %9s\n", "sink", "bytes", "messages", "writers", "msgs/s", "MB/s",
                "CPU us/msg", "msgs/batch");
    for (const auto& [name, sink] :
         {std::pair("direct", SinkChoice::direct), std::pair("buffered", SinkChoice::buffered),
          std::pair("none", SinkChoice::none)}) {
        const std::string path = folder + "/spool-bench";
        std::filesystem::remove_all(path);
        {
            Bench bench(path, sink);
            run(bench, body, messages / 5 + 1, writers, true);      // warm: segments are made and recycled
            const Monotonic settle = ring::monotonic_now() + seconds(1);
            while (ring::monotonic_now() < settle) bench.loop->run_turn(milliseconds(50));
            const uint64_t batches = bench.probe.batches;
            const Monotonic began = ring::monotonic_now();
            const double cpu = cpu_seconds();
            run(bench, body, messages, writers, true);
            const double took = (ring::monotonic_now() - began).seconds(), used = cpu_seconds() - cpu;
            const auto count = static_cast<double>(messages);
            std::printf("%-9s %8zu %8zu %8zu %10.0f %9.1f %12.1f %9.1f\n", name, bytes, messages, writers, count / took,
                        count * static_cast<double>(bytes) / took / 1e6, used / count * 1e6,
                        count / static_cast<double>(bench.probe.batches - batches));
        }
        std::filesystem::remove_all(path);
    }
    return 0;
}

void drop_from_cache(const std::string& path) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
        if (!entry.is_regular_file()) continue;
        const int fd = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
        if (fd < 0) continue;
        ::fdatasync(fd);
        ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        ::close(fd);
    }
}

int bench_recovery(const std::string& folder, size_t bytes, size_t messages) {
    const std::string path = folder + "/spool-bench", body(bytes, 'm');
    std::filesystem::remove_all(path);
    {
        Bench bench(path, SinkChoice::automatic);
        run(bench, body, messages, 200, false);
    }
    drop_from_cache(path);
    {
        Bench bench(path, SinkChoice::automatic);
        std::printf("%s\n", bench.spool->recovery().text().c_str());
    }
    std::filesystem::remove_all(path);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) return std::fprintf(stderr, "usage: spool_bench FOLDER [recover] [BYTES [MESSAGES [WRITERS]]]\n"), 2;
    const std::string folder = argv[1];
    const bool recover = argc > 2 && std::string(argv[2]) == "recover";
    const int first = recover ? 3 : 2;
    const auto number = [&](int index, size_t standard) {
        return argc > index ? std::strtoull(argv[index], nullptr, 10) : standard;
    };
    const size_t bytes = number(first, 5000);
    return recover ? bench_recovery(folder, bytes, number(first + 1, 200'000))
                   : bench_commits(folder, bytes, number(first + 1, 20'000), number(first + 2, 100));
}
