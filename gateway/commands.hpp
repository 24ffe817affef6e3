// The sub-commands of the program, without the command line's syntax.  Each returns an exit code (exit_codes.hpp).
#pragma once

#include <functional>
#include <string>

#include "gateway/gateway.hpp"

namespace postern::gateway {

// An empty path means the embedded default configuration (config/default.toml).
// `host_name` is used where the configuration names none.
int run_command(const std::string& config_path, const std::string& host_name, const std::function<Request(Duration)>& wait);
int check_command(const std::string& config_path);
int config_command(bool defaults);
int health_command(const std::string& config_path, const std::string& address);
int spool_verify_command(const std::string& path);
int version_command();

}  // namespace postern::gateway
