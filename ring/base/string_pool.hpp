// Strings that lend their memory: an idle connection keeps no capacity of its own, and a busy one does not allocate.
//
// take() gives an empty string with capacity; put() takes it back.  Large ones are freed, and so are those beyond a
// count: at most 1 MiB is kept.  Threads: one.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace postern {

class StringPool {
public:
    std::string take() {
        std::string string;
        if (spare_.empty()) {
            string.reserve(new_capacity);
        } else {
            string.swap(spare_.back());
            spare_.pop_back();
        }
        return string;
    }

    // Leaves `string` empty and without memory.
    void put(std::string& string) {
        std::string taken;
        taken.swap(string);
        if (taken.capacity() < new_capacity || taken.capacity() > kept_capacity_max || spare_.size() >= kept_max) return;
        taken.clear();
        spare_.push_back(std::move(taken));
    }

    size_t size() const { return spare_.size(); }

private:
    static constexpr size_t new_capacity = 512;
    static constexpr size_t kept_capacity_max = 4096;
    static constexpr size_t kept_max = 256;
    std::vector<std::string> spare_;
};

}  // namespace postern
