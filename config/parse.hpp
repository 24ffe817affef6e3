// TOML text to values: the first half of load_text().  Public to config/ and its tests.
#pragma once

#include <string_view>

#include "config/config.hpp"
#include "config/report.hpp"

namespace postern::config {

// What is wrong is reported and keeps its default; the rest of the file is read all the same.  A syntax error is the one
// thing that ends it.  A listener or route that could not be read stays in its place, with an empty text.
void parse(std::string_view toml, Config& config, Report& report);

}  // namespace postern::config
