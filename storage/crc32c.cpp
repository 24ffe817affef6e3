#include "storage/crc32c.hpp"

#include <array>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace postern::storage {
namespace {

constexpr uint32_t polynomial = 0x82f63b78;     // reflected

using ByteTable = std::array<uint32_t, 256>;
constexpr ByteTable make_byte_table() {
    ByteTable table{};
    for (uint32_t i = 0; i < 256; ++i) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) ? (crc >> 1) ^ polynomial : crc >> 1;
        table[i] = crc;
    }
    return table;
}
constexpr ByteTable byte_table = make_byte_table();

#if defined(__x86_64__)

// Appending zeros to what a CRC covers is linear over GF(2): four lookups replace running over `zeros` octets.  This is
// what lets three independent runs of the instruction (latency 3, throughput 1) be joined.
class ZerosAppended {
public:
    constexpr explicit ZerosAppended(size_t zeros) {
        std::array<uint32_t, 32> of_bit{};
        for (unsigned bit = 0; bit < 32; ++bit) {
            uint32_t crc = 1u << bit;
            for (size_t i = 0; i < zeros; ++i) crc = (crc >> 8) ^ byte_table[crc & 0xff];
            of_bit[bit] = crc;
        }
        for (unsigned octet = 0; octet < 4; ++octet)
            for (unsigned value = 0; value < 256; ++value)
                for (unsigned bit = 0; bit < 8; ++bit)
                    if (value & (1u << bit)) tables_[octet][value] ^= of_bit[octet * 8 + bit];
    }
    uint64_t operator()(uint64_t crc) const {
        return tables_[0][crc & 0xff] ^ tables_[1][(crc >> 8) & 0xff] ^ tables_[2][(crc >> 16) & 0xff] ^
               tables_[3][(crc >> 24) & 0xff];
    }

private:
    std::array<ByteTable, 4> tables_{};
};

constexpr size_t long_lane = 1024;
constexpr size_t short_lane = 128;
constexpr ZerosAppended long_zeros(long_lane);
constexpr ZerosAppended short_zeros(short_lane);

inline uint64_t word_at(const char* from) {
    uint64_t word;
    std::memcpy(&word, from, sizeof word);
    return word;
}

template <bool copying>
__attribute__((target("sse4.2"))) inline uint64_t step(uint64_t crc, char* to, const char* from, size_t offset) {
    const uint64_t word = word_at(from + offset);
    if constexpr (copying) std::memcpy(to + offset, &word, sizeof word);
    return _mm_crc32_u64(crc, word);
}

template <bool copying, size_t lane>
__attribute__((target("sse4.2"))) inline uint64_t three_lanes(uint64_t crc, char*& to, const char*& from, size_t& bytes,
                                                              const ZerosAppended& zeros) {
    while (bytes >= 3 * lane) {
        uint64_t second = 0, third = 0;
        for (size_t i = 0; i < lane; i += 8) {
            crc = step<copying>(crc, to, from, i);
            second = step<copying>(second, to, from, lane + i);
            third = step<copying>(third, to, from, 2 * lane + i);
        }
        crc = zeros(zeros(crc) ^ second) ^ third;
        from += 3 * lane;
        if constexpr (copying) to += 3 * lane;
        bytes -= 3 * lane;
    }
    return crc;
}

template <bool copying>
__attribute__((target("sse4.2"))) uint32_t by_instruction(uint32_t crc32, char* to, const char* from, size_t bytes) {
    uint64_t crc = ~crc32;
    crc = three_lanes<copying, long_lane>(crc, to, from, bytes, long_zeros);
    crc = three_lanes<copying, short_lane>(crc, to, from, bytes, short_zeros);
    for (; bytes >= 8; bytes -= 8, from += 8) {
        crc = step<copying>(crc, to, from, 0);
        if constexpr (copying) to += 8;
    }
    for (; bytes; --bytes, ++from) {
        if constexpr (copying) *to++ = *from;
        crc = _mm_crc32_u8(static_cast<uint32_t>(crc), static_cast<uint8_t>(*from));
    }
    return ~static_cast<uint32_t>(crc);
}

const bool hardware = __builtin_cpu_supports("sse4.2") > 0;
#endif

}  // namespace

uint32_t crc32c_by_table(uint32_t crc, const void* octets, size_t bytes) {
    const auto* at = static_cast<const uint8_t*>(octets);
    crc = ~crc;
    for (; bytes; --bytes) crc = (crc >> 8) ^ byte_table[(crc ^ *at++) & 0xff];
    return ~crc;
}

#if defined(__x86_64__)
bool crc32c_in_hardware() { return hardware; }
uint32_t crc32c(uint32_t crc, const void* octets, size_t bytes) {
    if (!hardware) return crc32c_by_table(crc, octets, bytes);
    return by_instruction<false>(crc, nullptr, static_cast<const char*>(octets), bytes);
}
uint32_t crc32c_copy(uint32_t crc, void* to, const void* from, size_t bytes) {
    if (hardware) return by_instruction<true>(crc, static_cast<char*>(to), static_cast<const char*>(from), bytes);
    std::memcpy(to, from, bytes);
    return crc32c_by_table(crc, from, bytes);
}
#else
bool crc32c_in_hardware() { return false; }
uint32_t crc32c(uint32_t crc, const void* octets, size_t bytes) { return crc32c_by_table(crc, octets, bytes); }
uint32_t crc32c_copy(uint32_t crc, void* to, const void* from, size_t bytes) {
    std::memcpy(to, from, bytes);
    return crc32c_by_table(crc, from, bytes);
}
#endif

}  // namespace postern::storage
