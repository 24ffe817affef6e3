// Blocking file calls: the seam.  For start-up, recovery, workers and tools; never on a shard's thread while it serves.
//
// Functions that return int give 0 (or a count) on success and -errno on failure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ring/base/result.hpp"
#include "ring/base/unique_fd.hpp"

namespace postern::ring {

enum class OpenMode {
    read,               // must exist
    read_write,         // must exist
    create_new,         // must not exist; O_EXCL
    read_write_direct,  // must exist; O_DIRECT: offsets, lengths and memory in whole blocks
};

Result<UniqueFd> open_file(const std::string& path, OpenMode mode, unsigned permissions = 0600);
int read_at(int fd, uint64_t offset, std::span<char> into);             // loops over EINTR and short reads; less only at the end
int write_at(int fd, uint64_t offset, std::span<const char> octets);    // loops; 0 or -errno
int sync_data(int fd);                                                  // fdatasync
int sync_file(int fd);                                                  // fsync
int sync_directory(const std::string& path);                            // makes created and renamed names durable
int set_file_size(int fd, uint64_t bytes);
Result<uint64_t> file_size(int fd);
int rename_file(const std::string& from, const std::string& to);
int link_file(const std::string& from, const std::string& to);
int remove_file(const std::string& path);
int remove_directory(const std::string& path);                              // must be empty
int make_directory(const std::string& path, unsigned permissions = 0700);   // 0 also when it is there already
int make_directories(const std::string& path, unsigned permissions = 0700); // with its parents
bool file_exists(const std::string& path);
Result<std::vector<std::string>> list_directory(const std::string& path);   // names, sorted, without . and ..
Result<std::string> read_file(const std::string& path, size_t bytes_max);

// An exclusive flock on `path` (created if needed), retried 20 times 50 ms apart, since the ring of a killed
// predecessor may hold it for a moment.  The lock lives as long as the descriptor.
Result<UniqueFd> lock_file(const std::string& path);

// Raises the soft limit on open descriptors to the hard one; returns what holds now.
uint64_t raise_descriptor_limit();

struct FileSystemSpace {
    uint64_t bytes_free = 0;        // to us, without the reserve of root
    uint64_t bytes_total = 0;
    uint64_t inodes_free = 0;
};
Result<FileSystemSpace> file_system_space(const std::string& path);

}  // namespace postern::ring
