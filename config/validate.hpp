// What no single key can show: whether the values make sense together.  The second half of load_text(), and of explain().
#pragma once

#include "config/config.hpp"
#include "config/report.hpp"

namespace postern::config {

// Silent about what follows from a mistake that the report has already.
void validate(const Config& config, Report& report);

}  // namespace postern::config
