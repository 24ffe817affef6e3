// Reads a spool offline and reports: `postern spool verify PATH`.  Blocking; changes nothing; the spool may be in use
// (then what is being written just now may show as a torn tail).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ring/base/result.hpp"

namespace postern::storage {

struct SpoolReport {
    struct Segment {
        std::string path;
        uint64_t sequence = 0;
        uint64_t frames = 0, messages = 0, results = 0, bytes_used = 0, bytes_total = 0;
        bool sealed = false;            // has a valid index
        bool torn_tail = false;
        std::vector<std::string> damage;    // "frame at 123456: CRC does not match"
    };
    std::vector<Segment> segments;
    uint64_t messages = 0, pending = 0, held = 0, delivered = 0, damaged = 0;
    uint64_t bytes_used = 0, bytes_total = 0, bytes_live = 0;
    bool intact() const;
};

Result<SpoolReport> verify_spool(const std::string& path);

}  // namespace postern::storage
