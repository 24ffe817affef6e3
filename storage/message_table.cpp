#include "storage/message_table.hpp"

namespace postern::storage {

uint32_t MessageTable::add() {
    if (free_ == no_message) {
        pages_.push_back(std::make_unique<MessageRow[]>(page_rows));
        for (uint32_t i = page_rows; i-- > 0;) {
            pages_.back()[i].next = free_;
            free_ = row_count_ + i;
        }
        row_count_ += page_rows;
    }
    const uint32_t message = free_;
    MessageRow& row = (*this)[message];
    free_ = row.next;
    row = MessageRow{};
    row.state = MessageRow::State::pending;
    ++used_;
    return message;
}

void MessageTable::release(uint32_t message) {
    MessageRow& row = (*this)[message];
    CHECK_INVARIANT(row.state != MessageRow::State::free);
    if (row.has_slots) slots_.erase(message);
    if (row.has_extents) extent_segments_.erase(message);
    row.state = MessageRow::State::free;
    row.next = free_;
    free_ = message;
    --used_;
}

RecipientSlot& MessageTable::slot(uint32_t message, uint32_t recipient) {
    MessageRow& row = (*this)[message];
    CHECK_INVARIANT(recipient < row.recipient_count);
    if (row.recipient_count == 1) return row.only;
    auto& slots = slots_[message];
    if (!row.has_slots) {
        slots.resize(row.recipient_count);
        row.has_slots = true;
    }
    return slots[recipient];
}

RecipientSlot MessageTable::peek(uint32_t message, uint32_t recipient) const {
    const MessageRow& row = (*this)[message];
    CHECK_INVARIANT(recipient < row.recipient_count);
    if (row.recipient_count == 1) return row.only;
    return row.has_slots ? slots_.at(message)[recipient] : RecipientSlot{};
}

}  // namespace postern::storage
