// The admin port: HTTP for Prometheus and for whatever watches over the process.
//
// GET and HEAD of /metrics, /livez, /readyz and /startupz; 200, or 503 with the reason; anything else is 404 or 405.
// CivetWeb owns the socket and its two threads: the state's functions are called from them, at any time until the server is
// destroyed, and must not wait for a shard.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "ring/base/result.hpp"

namespace postern::gateway {

struct AdminState {
    std::function<std::string()> metrics;           // the text of /metrics
    std::function<bool()> live, ready, started;
    std::function<std::string()> reason;            // why one of them is false, in one line
};

class AdminServer {
public:
    // `address` is numeric IPv4 with a port, or "*:port"; port 0 takes a free one.  Fails with the errno of binding
    // (EADDRINUSE, EADDRNOTAVAIL, EACCES) where that is what went wrong.
    static Result<std::unique_ptr<AdminServer>> start(const std::string& address, AdminState state);
    ~AdminServer();                                 // answers what has been asked, then closes
    AdminServer(const AdminServer&) = delete;
    AdminServer& operator=(const AdminServer&) = delete;

    uint16_t port() const;

private:
    struct Impl;
    explicit AdminServer(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace postern::gateway
