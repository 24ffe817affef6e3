// Where the octets that matter to the framer stand in a block of 64: one bit per octet, bit 0 the first.
//
// Two implementations with equal results: SSE2, and a portable one for other processors.  The choice is made at compile
// time; a test holds them against each other.
#pragma once

#include <cstdint>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace postern::proto {

constexpr unsigned mask_block_bytes = 64;

struct OctetMasks {
    uint64_t cr = 0;
    uint64_t lf = 0;
    uint64_t dot = 0;
    uint64_t nul = 0;
    uint64_t high = 0;      // above 127
};

struct PortableMasks {
    static uint64_t equal(const char* block, char wanted) {
        uint64_t mask = 0;
        for (unsigned i = 0; i < mask_block_bytes; ++i) mask |= static_cast<uint64_t>(block[i] == wanted) << i;
        return mask;
    }
    static uint64_t high(const char* block) {
        uint64_t mask = 0;
        for (unsigned i = 0; i < mask_block_bytes; ++i)
            mask |= static_cast<uint64_t>(static_cast<unsigned char>(block[i]) >> 7) << i;
        return mask;
    }
    // `nul` is looked for only when asked: it matters in the header alone.
    template <bool with_nul>
    static OctetMasks of(const char* block) {
        return {equal(block, '\r'), equal(block, '\n'), equal(block, '.'), with_nul ? equal(block, '\0') : 0,
                high(block)};
    }
};

#if defined(__SSE2__)
struct Sse2Masks {
    struct Lanes {
        __m128i lane[4];
    };
    static uint64_t bits(__m128i a, __m128i b, __m128i c, __m128i d) {
        const auto low = static_cast<uint32_t>(_mm_movemask_epi8(a)) | static_cast<uint32_t>(_mm_movemask_epi8(b))
                                                                           << 16;
        const auto high = static_cast<uint32_t>(_mm_movemask_epi8(c)) | static_cast<uint32_t>(_mm_movemask_epi8(d))
                                                                            << 16;
        return low | static_cast<uint64_t>(high) << 32;
    }
    static uint64_t equal(const Lanes& block, char wanted) {
        const __m128i all = _mm_set1_epi8(wanted);
        return bits(_mm_cmpeq_epi8(block.lane[0], all), _mm_cmpeq_epi8(block.lane[1], all),
                    _mm_cmpeq_epi8(block.lane[2], all), _mm_cmpeq_epi8(block.lane[3], all));
    }
    template <bool with_nul>
    static OctetMasks of(const char* octets) {
        Lanes block;
        for (unsigned i = 0; i < 4; ++i)
            block.lane[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(octets + 16 * i));
        return {equal(block, '\r'), equal(block, '\n'), equal(block, '.'), with_nul ? equal(block, '\0') : 0,
                bits(block.lane[0], block.lane[1], block.lane[2], block.lane[3])};
    }
};
using Masks = Sse2Masks;
#else
using Masks = PortableMasks;
#endif

}  // namespace postern::proto
