// The memory of one ring: [receive buffers | staging] in one anonymous mapping, and the ring of descriptors through which
// the kernel is given the receive buffers.
//
// Published with release order through io_uring_buf_ring_advance(); io_uring_buf_ring_cq_advance() of liburing 2.3 stores
// the tail unordered and is not used (trap 1).  Neither mapping is inherited by fork.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ring/base/check.hpp"
#include "ring/base/result.hpp"

struct io_uring;
struct io_uring_buf_ring;

namespace postern::ring {

// An anonymous mapping, zeroed, page aligned, MADV_DONTFORK.
class Mapping {
public:
    Mapping() = default;
    Mapping(Mapping&& other) noexcept;
    Mapping& operator=(Mapping&& other) noexcept;
    ~Mapping();
    static Mapping create(size_t bytes);        // empty, with errno, when there is no memory

    char* data() const { return data_; }
    size_t size() const { return size_; }
    explicit operator bool() const { return data_ != nullptr; }
    bool holds(const void* memory, size_t bytes) const {
        const char* first = static_cast<const char*>(memory);
        return first >= data_ && first <= data_ + size_ && bytes <= static_cast<size_t>(data_ + size_ - first);
    }

private:
    char* data_ = nullptr;
    size_t size_ = 0;
};

class ReceiveBuffers {
public:
    static constexpr unsigned group = 0;

    // Registers the descriptors of `count` buffers of `bytes` octets at the start of `region`.  0 or -errno.
    int attach(io_uring& ring, char* region, unsigned count, uint32_t bytes);

    const char* buffer(uint16_t id) const {
        CHECK_INVARIANT(id < count_);
        return region_ + size_t{id} * bytes_;
    }
    unsigned free() const { return free_; }
    void taken() {
        CHECK_INVARIANT(free_ > 0);
        --free_;
    }
    void give_back(uint16_t id);
    void publish();

private:
    void add(uint16_t id);

    char* region_ = nullptr;
    unsigned count_ = 0;
    uint32_t bytes_ = 0;
    Mapping descriptors_;
    io_uring_buf_ring* kernel_ring_ = nullptr;
    unsigned unpublished_ = 0;
    unsigned free_ = 0;
};

}  // namespace postern::ring
