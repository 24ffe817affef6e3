#include "gateway/commands.hpp"

#include <fmt/core.h>

#include "config/config.hpp"
#include "gateway/exit_codes.hpp"
#include "gateway/health.hpp"
#include "gateway/version.hpp"
#include "ring/ring.hpp"
#include "storage/verify.hpp"

namespace postern::gateway {

namespace {

config::Loaded load(const std::string& path) {
    return path.empty() ? config::load_text(config::default_toml(), "(embedded default)") : config::load_file(path);
}

// Prints what was found; true when the configuration can be used.
bool report(const config::Loaded& loaded) {
    for (const config::Finding& finding : loaded.findings) fmt::print(stderr, "{}\n", finding.text());
    return loaded.usable();
}

constexpr Duration health_timeout = seconds(3);

}  // namespace

int run_command(const std::string& config_path, const std::string& host_name, const std::function<Request(Duration)>& wait) {
    config::Loaded loaded = load(config_path);
    if (!report(loaded)) return exit_config;
    if (loaded.config.server.hostname.empty()) loaded.config.server.hostname = host_name;
    return Gateway(loaded.config).run(wait);
}

int check_command(const std::string& config_path) {
    const config::Loaded loaded = load(config_path);
    if (!report(loaded)) return exit_config;
    fmt::print("{}", config::explain(loaded.config));
    return exit_ok;
}

int config_command(bool defaults) {
    fmt::print("{}", defaults ? config::default_toml() : config::reference_toml());
    return exit_ok;
}

int health_command(const std::string& config_path, const std::string& address) {
    std::string admin = address;
    if (admin.empty()) {
        const config::Loaded loaded = load(config_path);
        if (!report(loaded)) return exit_config;
        admin = loaded.config.admin.address.text;
    }
    auto status = http_status(admin, "/readyz", health_timeout);
    if (!status) {
        fmt::print(stderr, "postern: {}\n", status.error().text);
        return exit_failed;
    }
    fmt::print("{}\n", *status == 200 ? "ready" : fmt::format("not ready: /readyz answered {}", *status));
    return *status == 200 ? exit_ok : exit_failed;
}

int spool_verify_command(const std::string& path) {
    auto report = storage::verify_spool(path);
    if (!report) {
        fmt::print(stderr, "postern: {}\n", report.error().text);
        return exit_spool_unusable;
    }
    for (const storage::SpoolReport::Segment& segment : report->segments) {
        fmt::print("{}: sequence {}, {}{}, {} frames, {} messages, {} results, {} of {} octets used\n", segment.path,
                   segment.sequence, segment.sealed ? "sealed" : "open", segment.torn_tail ? ", torn tail" : "", segment.frames,
                   segment.messages, segment.results, segment.bytes_used, segment.bytes_total);
        for (const std::string& damage : segment.damage) fmt::print("  damage: {}\n", damage);
    }
    fmt::print("{} messages: {} pending, {} held, {} delivered, {} damaged; {} of {} octets used, {} of live messages\n",
               report->messages, report->pending, report->held, report->delivered, report->damaged, report->bytes_used,
               report->bytes_total, report->bytes_live);
    fmt::print("{}\n", report->intact() ? "intact" : "DAMAGED");
    return report->intact() ? exit_ok : exit_spool_damaged;
}

int version_command() {
    fmt::print("postern {}\n", version_text());
    ring::RingConfig config;
    config.submission_entries = 8;
    config.completion_entries = 64;
    config.receive_buffers = 16;
    auto ring = ring::Ring::create(config);
    if (ring) {
        fmt::print("io_uring: {}\n", (*ring)->features().text());
    } else {
        fmt::print("io_uring: not usable: {}\n", ring.error().error.text);
    }
    return exit_ok;
}

}  // namespace postern::gateway
