#include "storage/record_queue.hpp"

#include "ring/base/check.hpp"

namespace postern::storage {

void RecordQueue::push(const RecordHeader& header, std::string_view detail, uint32_t subject, uint32_t completes) {
    append_record(header, detail, octets_);
    items_.push_back({record_bytes(detail.size()), subject, completes});
}

void RecordQueue::completed_already(uint32_t message) {
    for (Item& item : items_)
        if (item.completes == message) item.completes = no_message;
}

std::string_view RecordQueue::take(uint64_t bytes_max) {
    CHECK_INVARIANT(taken_ == 0);
    while (taken_ < items_.size() && taken_bytes_ + items_[taken_].bytes <= bytes_max)
        taken_bytes_ += items_[taken_++].bytes;
    return {octets_.data(), taken_bytes_};
}

}  // namespace postern::storage
