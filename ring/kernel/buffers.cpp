#include "ring/kernel/buffers.hpp"

#include <cerrno>
#include <liburing.h>
#include <sys/mman.h>
#include <utility>

namespace postern::ring {

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
}

Mapping::~Mapping() {
    if (data_) ::munmap(data_, size_);
}

Mapping Mapping::create(size_t bytes) {
    Mapping mapping;
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return mapping;
    mapping.data_ = static_cast<char*>(memory);
    mapping.size_ = bytes;
    // A child's copy-on-write would move our pages away from under the kernel.
    ::madvise(memory, bytes, MADV_DONTFORK);
    return mapping;
}

int ReceiveBuffers::attach(io_uring& ring, char* region, unsigned count, uint32_t bytes) {
    region_ = region;
    count_ = count;
    bytes_ = bytes;
    descriptors_ = Mapping::create(count * sizeof(io_uring_buf));
    if (!descriptors_) return -errno;
    io_uring_buf_reg registration{};
    registration.ring_addr = reinterpret_cast<uintptr_t>(descriptors_.data());
    registration.ring_entries = count;
    registration.bgid = group;
    if (const int status = io_uring_register_buf_ring(&ring, &registration, 0); status < 0) return status;
    kernel_ring_ = reinterpret_cast<io_uring_buf_ring*>(descriptors_.data());
    io_uring_buf_ring_init(kernel_ring_);
    for (unsigned id = 0; id < count; ++id) add(static_cast<uint16_t>(id));
    publish();
    return 0;
}

void ReceiveBuffers::add(uint16_t id) {
    io_uring_buf_ring_add(kernel_ring_, region_ + size_t{id} * bytes_, bytes_, id,
                          io_uring_buf_ring_mask(count_), static_cast<int>(unpublished_));
    ++unpublished_;
    ++free_;
}

void ReceiveBuffers::give_back(uint16_t id) {
    CHECK_INVARIANT(id < count_ && free_ < count_);
    add(id);
    // What the kernel can use has run low: do not wait for the end of the turn.
    if (free_ - unpublished_ < count_ / 4) publish();
}

void ReceiveBuffers::publish() {
    if (unpublished_ == 0) return;
    io_uring_buf_ring_advance(kernel_ring_, static_cast<int>(std::exchange(unpublished_, 0)));
}

}  // namespace postern::ring
