// Names in the spool folder, and making segment files.  Blocking: start-up, housekeeping workers and tools only.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ring/base/result.hpp"
#include "storage/format.hpp"
#include "storage/probe.hpp"

namespace postern::storage {

std::string shard_folder(const std::string& spool, unsigned shard);             // <spool>/shard-007
std::optional<unsigned> shard_of_folder(std::string_view name);
std::string segment_name(uint64_t number);                                      // 16 hexadecimal digits and ".seg"
bool is_segment_name(std::string_view name);
bool is_unfinished_name(std::string_view name);                                 // ".new": a creation that was cut short

std::vector<unsigned> shards_in(const std::string& spool);                      // that have a folder, ascending
std::vector<std::string> segment_files_in(const std::string& folder);           // names, ascending

// Makes a file of header.segment_bytes zeros under its final name, durable with its name.  0 or -errno; leaves nothing behind
// when it fails.  The zeros are written without DSYNC, with one flush at the end: that is 4 times faster.  `direct` as the
// commits will be: pages left in the cache would send each direct write over them to a kernel worker thread.
int create_segment(const std::string& folder, const std::string& name, const SegmentHeader& header, bool direct);
// Begins a new life of a segment whose file is open: durable before the first batch of that life (S1).
int write_segment_header(int fd, const SegmentHeader& header);

// Whether the file system of `folder` takes direct writes.
bool takes_direct_writes(const std::string& folder);

}  // namespace postern::storage
