// How fast DataFramer passes over message data: text of 78 columns, in receive buffers of 16 KiB.
#include <chrono>
#include <cstdio>
#include <string>

#include "proto/framer.hpp"

namespace {

struct CountingSink final : postern::proto::DataSink {
    void on_data(std::string_view slice) override { bytes += slice.size(); }
    uint64_t bytes = 0;
};

constexpr size_t buffer_bytes = 16384;
constexpr int rounds = 40;
constexpr int buffers_per_round = 4096;

double gigabytes_per_second(const std::string& buffer, bool header) {
    using namespace postern::proto;
    CountingSink sink;
    double best = 0;
    for (int round = 0; round < rounds; ++round) {
        DataFramer framer;
        framer.begin_data(BareNewline::reject);
        if (!header) framer.feed("\r\n", sink);
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < buffers_per_round; ++i) framer.feed(buffer, sink);
        const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
        const double speed = static_cast<double>(buffer.size()) * buffers_per_round / spent.count() / 1e9;
        if (speed > best) best = speed;
    }
    return best;
}

std::string text(const std::string& line) {
    std::string buffer;
    while (buffer.size() < buffer_bytes) buffer += line;
    buffer.resize(buffer_bytes);
    return buffer;
}

}  // namespace

int main() {
    std::string line = "The quick brown fox jumps over the lazy dog. It does so 3.5 times.";
    line.resize(76, 'x');
    std::printf("body, 78 columns        %6.2f GB/s\n", gigabytes_per_second(text(line + "\r\n"), false));
    std::printf("body, stuffed every line %5.2f GB/s\n",
                gigabytes_per_second(text(".." + line.substr(2) + "\r\n"), false));
    std::printf("header, 78 columns      %6.2f GB/s\n",
                gigabytes_per_second(text("X: " + line.substr(3) + "\r\n"), true));
}
