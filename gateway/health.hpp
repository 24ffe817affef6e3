// The asking side of the admin port, for `postern health` and the tests.
#pragma once

#include <string>

#include "ring/base/result.hpp"
#include "ring/base/units.hpp"

namespace postern::gateway {

// GET of `path` from the HTTP server at `address` ("127.0.0.1:9125"; of "*" and "0.0.0.0" this host is asked).  Blocks until
// the status line is there, at most `timeout` once connected.  Fails when there is no HTTP answer.
Result<int> http_status(const std::string& address, const std::string& path, Duration timeout);

}  // namespace postern::gateway
