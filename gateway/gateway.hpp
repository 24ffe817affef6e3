// The whole program at work: owns the shards and their threads, the workers, the log, the admin server, and the order in
// which they start and stop.
//
// Threads: made and run on the main thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "config/config.hpp"
#include "ring/base/units.hpp"

namespace postern::gateway {

// What the outside asks of a running gateway.
enum class Request { none, stop };

class Gateway {
public:
    explicit Gateway(const config::Config& config);
    ~Gateway();

    // Runs until it has stopped; returns the exit code (exit_codes.hpp).  `wait` waits for a signal at most so long.
    //
    // Stop: not ready at once; listeners close after drain_delay; sessions between commands get 421, those in data may
    // finish, deliveries under way too, within drain_timeout.  A second stop ends it at once.  Accepted mail is on disk
    // and stays there.
    int run(const std::function<Request(Duration)>& wait);

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace postern::gateway
