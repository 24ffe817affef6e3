// CRC32C (Castagnoli, RFC 3720 appendix B.4), by the SSE4.2 instruction where the processor has it, else by table.
//
// Pass 0 to begin, or an earlier result to go on.  Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace postern::storage {

uint32_t crc32c(uint32_t crc, const void* octets, size_t bytes);
inline uint32_t crc32c(uint32_t crc, std::string_view octets) { return crc32c(crc, octets.data(), octets.size()); }

// Copies on the way: the one copy of a message's octets into its batch.  The ranges do not overlap.
uint32_t crc32c_copy(uint32_t crc, void* to, const void* from, size_t bytes);

// The fallback, to be tested against the other.
uint32_t crc32c_by_table(uint32_t crc, const void* octets, size_t bytes);
bool crc32c_in_hardware();

}  // namespace postern::storage
