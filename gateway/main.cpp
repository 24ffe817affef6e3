// Arguments to commands, signals to requests, nothing else.

#include <CLI/CLI.hpp>
#include <csignal>
#include <ctime>
#include <iostream>
#include <unistd.h>

#include "gateway/commands.hpp"
#include "gateway/exit_codes.hpp"

namespace {

using namespace postern;
using namespace postern::gateway;

// SIGTERM and SIGINT are taken here and nowhere else: blocked before any thread starts, so that all inherit it.
sigset_t block_signals() {
    signal(SIGPIPE, SIG_IGN);
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    return signals;
}

Request wait_for_signal(const sigset_t& signals, Duration most) {
    if (most.ns < 0) most.ns = 0;
    const timespec timeout{most.ns / 1'000'000'000, most.ns % 1'000'000'000};
    const int signal = sigtimedwait(&signals, nullptr, &timeout);
    return signal == SIGTERM || signal == SIGINT ? Request::stop : Request::none;
}

std::string host_name() {
    char name[256] = {};
    return gethostname(name, sizeof name - 1) == 0 && *name ? name : "localhost";
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"Postern: takes mail in over SMTP, makes it durable before it says 250, and hands it on."};
    app.require_subcommand(0, 1);
    app.footer("Exit codes: 0 done, 1 failed or not healthy, 2 configuration, 10-14 io_uring not usable, 20-21 address,\n"
               "30-34 spool; README.md has the list.");
    bool version = false;
    app.add_flag("--version", version, "Version, build, and what this kernel's io_uring offers");

    std::string config_path, address, spool_path;
    bool defaults = false;
    CLI::App* run = app.add_subcommand("run", "Serve in the foreground until SIGTERM; a second SIGTERM stops at once");
    run->add_option("-c,--config", config_path, "Configuration file; without it an embedded one for trying out")->type_name("FILE");
    CLI::App* check = app.add_subcommand("check", "Load, validate and explain a configuration; exit 0 or 2");
    check->add_option("-c,--config", config_path, "Configuration file")->type_name("FILE");
    CLI::App* config = app.add_subcommand("config", "Print the commented reference configuration");
    config->add_flag("--default", defaults, "Print the embedded configuration of `postern run` instead");
    CLI::App* health = app.add_subcommand("health", "Ask a running gateway whether it is ready; exit 0 or 1");
    health->add_option("-c,--config", config_path, "Its configuration file, for the admin address")->type_name("FILE");
    health->add_option("-a,--address", address, "Its admin address")->type_name("HOST:PORT");
    CLI::App* spool = app.add_subcommand("spool", "Look at a spool");
    spool->require_subcommand(1);
    CLI::App* verify = spool->add_subcommand("verify", "Read a spool offline; report messages, damage and space");
    verify->add_option("path", spool_path, "The spool folder")->required()->type_name("PATH");

    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? exit_ok : exit_config;
    }
    if (version) return version_command();
    if (*run) {
        const sigset_t signals = block_signals();
        return run_command(config_path, host_name(), [&](Duration most) { return wait_for_signal(signals, most); });
    }
    if (*check) return check_command(config_path);
    if (*config) return config_command(defaults);
    if (*health) return health_command(config_path, address);
    if (*verify) return spool_verify_command(spool_path);
    std::cout << app.help();
    return exit_config;
}
