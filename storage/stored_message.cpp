#include <cerrno>
#include <cstring>
#include <string>

#include "ring/files.hpp"
#include "storage/spool_impl.hpp"

namespace postern::storage {

// Everything a worker needs, copied on the shard.  A small message that is still in memory is copied as a whole: one
// memcpy is cheaper than a direct read.
struct StoredMessage::State {
    struct Place {
        int fd;
        uint64_t epoch;
    };
    static constexpr uint32_t copy_bytes_max = 64_KiB;

    std::string payload;            // of the message frame; empty: to be read
    Place own{-1, 0};
    uint32_t offset = 0;
    uint32_t payload_bytes = 0;
    std::vector<Place> others;      // segments of its fragments

    Result<std::string_view> frame(const Place& place, uint64_t at, FrameType type, uint32_t bytes,
                                   AlignedBuffer& buffer) const {
        const uint64_t begin = at / block_bytes * block_bytes,
                       end = round_up(at + frame_header_bytes + bytes, block_bytes);
        if (buffer.bytes() < end - begin) buffer = AlignedBuffer(round_up(end - begin, 64_KiB));
        const auto range = buffer.span().first(end - begin);
        const int count = ring::read_at(place.fd, begin, range);
        if (count < 0) return fail(os_error(-count, "cannot read from the spool"));
        const std::string_view octets(range.data() + (at - begin), static_cast<size_t>(end - at));
        const auto header = decode_frame_header(octets, place.epoch, at);
        const bool good = header && header->type == static_cast<uint8_t>(type) && header->payload_bytes == bytes &&
                          payload_intact(*header, octets.substr(frame_header_bytes, bytes));
        if (!good) return fail(Error{EIO, "the spool is damaged at " + std::to_string(at)});
        return octets.substr(frame_header_bytes, bytes);
    }
};

StoredMessage::StoredMessage() = default;
StoredMessage::StoredMessage(StoredMessage&&) noexcept = default;
StoredMessage& StoredMessage::operator=(StoredMessage&&) noexcept = default;
StoredMessage::~StoredMessage() = default;

StoredMessage Spool::stored(MessageIndex message) {
    CHECK_INVARIANT(impl_->messages.valid(message));
    const MessageRow& row = impl_->messages[message];
    const Segment& segment = impl_->segments[row.segment];
    StoredMessage stored;
    stored.state_ = std::make_unique<StoredMessage::State>();
    StoredMessage::State& state = *stored.state_;
    state.own = {segment.fd.get(), segment.epoch};
    state.offset = row.offset;
    state.payload_bytes = row.payload_bytes;
    if (row.has_extents)
        for (const uint32_t other : impl_->messages.extent_segments(message))
            state.others.push_back({impl_->segments[other].fd.get(), impl_->segments[other].epoch});
    if (segment.life && row.payload_bytes <= StoredMessage::State::copy_bytes_max) {
        const auto frame = impl_->staging.find(segment.life, row.offset, frame_header_bytes + row.payload_bytes);
        if (!frame.empty()) {
            state.payload.assign(frame.substr(frame_header_bytes));
            impl_->probe.read_from_memory(row.payload_bytes);
        }
    }
    return stored;
}

Result<void> StoredMessage::read(const std::function<bool(std::string_view)>& consume) const {
    CHECK_INVARIANT(state_ != nullptr);
    AlignedBuffer own, other;
    std::string_view payload = state_->payload;
    if (payload.empty()) {
        const auto octets = state_->frame(state_->own, state_->offset, FrameType::message, state_->payload_bytes, own);
        if (!octets) return fail(octets.error());
        payload = *octets;
    }
    const auto message = decode_message(payload);
    if (!message) return fail(Error{EIO, "the spool is damaged at " + std::to_string(state_->offset)});
    for (size_t i = 0; i < message->header.extent_count; ++i) {
        const Extent extent = message->extent(i);
        const State::Place* place = extent.epoch == state_->own.epoch ? &state_->own : nullptr;
        for (const State::Place& candidate : state_->others)
            if (candidate.epoch == extent.epoch) place = &candidate;
        if (!place) return fail(Error{EIO, "a part of the message is not in the spool"});
        const auto octets = state_->frame(*place, extent.offset, FrameType::fragment, extent.bytes, other);
        if (!octets) return fail(octets.error());
        if (!consume(*octets)) return {};
    }
    if (!message->tail.empty()) consume(message->tail);
    return {};
}

}  // namespace postern::storage
