// A slab of elements with stable addresses, addressed by a small index and a generation that tells a reused slot from
// the one that was meant.  No allocation once it has reached its working size.  Threads: one.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "ring/base/check.hpp"

namespace postern {

template <class Element, uint32_t page_elements = 64>
class Slab {
public:
    struct Handle {
        uint32_t index = UINT32_MAX;
        uint32_t generation = 0;
        bool operator==(const Handle&) const = default;
    };

    Slab() = default;
    Slab(const Slab&) = delete;
    Slab& operator=(const Slab&) = delete;
    ~Slab() {
        for (uint32_t index = 0; index < slot_count_; ++index)
            if (Slot& slot = at(index); slot.used) slot.element()->~Element();
    }

    template <class... Arguments>
    Handle emplace(Arguments&&... arguments) {
        if (free_ == none) grow();
        const uint32_t index = free_;
        Slot& slot = at(index);
        free_ = slot.next_free;
        ::new (slot.storage) Element(std::forward<Arguments>(arguments)...);
        slot.used = true;
        ++count_;
        return {index, slot.generation};
    }

    // The index that the next emplace() will use, for elements that must know their own.
    uint32_t next_index() {
        if (free_ == none) grow();
        return free_;
    }

    // Null when the handle is stale.
    Element* get(Handle handle) {
        if (handle.index >= slot_count_) return nullptr;
        Slot& slot = at(handle.index);
        return slot.used && slot.generation == handle.generation ? slot.element() : nullptr;
    }
    Element& operator[](uint32_t index) {
        CHECK_INVARIANT(index < slot_count_ && at(index).used);
        return *at(index).element();
    }
    void erase(uint32_t index) {
        Slot& slot = at(index);
        CHECK_INVARIANT(slot.used);
        slot.element()->~Element();
        slot.used = false;
        ++slot.generation;
        slot.next_free = free_;
        free_ = index;
        --count_;
    }
    size_t size() const { return count_; }

    template <class Visit>
    void for_each(Visit&& visit) {      // visit(index, element); it may erase that element
        for (uint32_t index = 0; index < slot_count_; ++index)
            if (at(index).used) visit(index, *at(index).element());
    }

private:
    static constexpr uint32_t none = UINT32_MAX;
    struct Slot {
        alignas(Element) std::byte storage[sizeof(Element)];
        uint32_t generation = 0;
        uint32_t next_free = none;
        bool used = false;
        Element* element() { return std::launder(reinterpret_cast<Element*>(storage)); }
    };
    Slot& at(uint32_t index) { return pages_[index / page_elements][index % page_elements]; }
    void grow() {
        pages_.push_back(std::make_unique<Slot[]>(page_elements));
        for (uint32_t i = page_elements; i-- > 0;) {
            const uint32_t index = slot_count_ + i;
            pages_.back()[i].next_free = free_;
            free_ = index;
        }
        slot_count_ += page_elements;
    }

    std::vector<std::unique_ptr<Slot[]>> pages_;
    uint32_t slot_count_ = 0;
    uint32_t free_ = none;
    size_t count_ = 0;
};

}  // namespace postern
