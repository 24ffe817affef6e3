#include <cerrno>
#include <string>

#include "storage/spool_impl.hpp"

namespace postern::storage {
namespace {

// What a direct read of [offset, offset + bytes) has to cover.
struct BlockRange {
    uint64_t begin, end;
    BlockRange(uint64_t offset, uint64_t bytes)
        : begin(offset / block_bytes * block_bytes), end(round_up(offset + bytes, block_bytes)) {}
};

// The payload of the frame at `offset`, out of octets read from `begin` on; empty when it is not intact.
std::string_view checked_payload(std::string_view octets, uint64_t begin, uint64_t epoch, uint64_t offset,
                                 FrameType type, uint32_t payload_bytes) {
    const auto frame = octets.substr(offset - begin);
    const auto header = decode_frame_header(frame, epoch, offset);
    if (!header || header->type != static_cast<uint8_t>(type) || header->payload_bytes != payload_bytes) return {};
    const auto payload = frame.substr(frame_header_bytes, payload_bytes);
    return payload_intact(*header, payload) ? payload : std::string_view();
}

}  // namespace

struct MessageReader::State final : private ring::FileOperation {
    State(Spool::Impl& of, MessageReaderHandler& whom) : FileOperation(of.loop), spool(of), handler(&whom) {}

    Spool::Impl& spool;
    MessageReaderHandler* handler;          // null: the reader is gone, and this deletes itself when the read is over
    MessageIndex message = no_message;
    bool is_open = false;
    bool loaded = false;                    // envelope and attributes are there
    bool bad = false;
    uint64_t payload_read = UINT64_MAX;     // offset of the frame whose payload is in the buffer
    uint32_t segment = no_segment;          // pinned while open
    uint32_t offset = 0;
    uint32_t payload_bytes = 0;
    std::string envelope;
    MessageAttributes attributes;
    std::vector<Extent> extents;
    size_t next_part = 0;                   // extents, then the tail
    uint32_t tail_bytes = 0;

    AlignedBuffer buffer;
    uint32_t wanted_segment = no_segment, wanted_offset = 0, wanted_bytes = 0;

    enum class Got : uint8_t { yes, pending, bad };

    // The payload of a frame: from memory, from the buffer, or else a read is started.
    Got get(uint32_t of, uint32_t at, FrameType type, uint32_t bytes, std::string_view& payload) {
        Segment& from = spool.segments[of];
        const std::string_view cached =
            from.life ? spool.staging.find(from.life, at, frame_header_bytes + bytes) : std::string_view();
        if (!cached.empty()) {
            payload = cached.substr(frame_header_bytes);
            return Got::yes;
        }
        const BlockRange range(at, uint64_t{frame_header_bytes} + bytes);
        if (payload_read == at && wanted_segment == of) {
            const std::string_view octets(buffer.span().data(), range.end - range.begin);
            payload = checked_payload(octets, range.begin, from.epoch, at, type, bytes);
            if (!payload.empty() || bytes == 0) return Got::yes;
            spool.probe.damage_found(1);
            return Got::bad;
        }
        if (range.end > from.bytes) return Got::bad;
        if (buffer.bytes() < range.end - range.begin) buffer = AlignedBuffer(round_up(range.end - range.begin, 64_KiB));
        wanted_segment = of;
        wanted_offset = at;
        wanted_bytes = bytes;
        payload_read = UINT64_MAX;
        ++spool.reads_in_flight;
        read(from.fd.get(), range.begin, buffer.span().first(range.end - range.begin));
        return Got::pending;
    }

    void on_file_done(int32_t result) override {
        --spool.reads_in_flight;
        if (!handler) {
            delete this;
            return;
        }
        if (!is_open) return;           // closed meanwhile: what came is of no use, and says nothing about the next message
        const BlockRange range(wanted_offset, uint64_t{frame_header_bytes} + wanted_bytes);
        if (result == static_cast<int32_t>(range.end - range.begin)) {
            payload_read = wanted_offset;
            spool.probe.read_from_disk(wanted_bytes);
        } else {
            bad = true;
            spool.probe.damage_found(1);
        }
        handler->on_readable();
    }

    Status load_message() {
        if (in_flight()) return Status::pending;
        if (bad) return Status::failed;
        std::string_view payload;
        switch (get(segment, offset, FrameType::message, payload_bytes, payload)) {
            case Got::pending: return Status::pending;
            case Got::bad: bad = true; return Status::failed;
            case Got::yes: break;
        }
        const auto decoded = decode_message(payload);
        if (!decoded) {
            bad = true;
            return Status::failed;
        }
        const MessageHeader& header = decoded->header;
        envelope.assign(decoded->envelope);
        attributes = {{header.received_ns}, header.message_bytes, header.recipient_count, header.flags};
        extents.clear();
        for (size_t i = 0; i < header.extent_count; ++i) extents.push_back(decoded->extent(i));
        tail_bytes = header.tail_bytes;
        next_part = 0;
        loaded = true;
        return Status::ready;
    }

    Status next(std::string_view& octets) {
        if (in_flight()) return Status::pending;
        if (bad) return Status::failed;
        const bool from_disk_before = payload_read != UINT64_MAX;
        std::string_view payload;
        Got got;
        if (next_part < extents.size()) {
            const Extent& extent = extents[next_part];
            const uint32_t of = spool.segments.find(extent.epoch);
            got = of == no_segment ? Got::bad : get(of, extent.offset, FrameType::fragment, extent.bytes, payload);
        } else if (next_part == extents.size() && tail_bytes > 0) {
            got = get(segment, offset, FrameType::message, payload_bytes, payload);
            if (got == Got::yes) payload = payload.substr(payload.size() - tail_bytes);
        } else {
            return Status::end;
        }
        if (got == Got::pending) return Status::pending;
        if (got == Got::bad) {
            bad = true;
            return Status::failed;
        }
        if (!from_disk_before) spool.probe.read_from_memory(payload.size());
        octets = payload;
        ++next_part;
        return Status::ready;
    }

    void close() {
        if (is_open) spool.segments.unpin(segment);
        is_open = loaded = bad = false;
        payload_read = UINT64_MAX;
        if (buffer.bytes() > 64_KiB && !in_flight()) buffer = {};
    }
    using FileOperation::in_flight;
};

MessageReader::MessageReader(Spool& spool, MessageReaderHandler& handler)
    : state_(std::make_unique<State>(spool.impl(), handler)) {}

MessageReader::~MessageReader() {
    state_->close();
    if (!state_->in_flight()) return;
    state_->handler = nullptr;
    state_.release();
}

MessageReader::Status MessageReader::open(MessageIndex message) {
    if (state_->is_open) {
        CHECK_INVARIANT(state_->message == message);
        return state_->loaded ? Status::ready : state_->load_message();
    }
    if (state_->in_flight()) {      // of an earlier message: leave that read to itself
        auto* const left = state_.get();
        auto fresh = std::make_unique<State>(left->spool, *left->handler);
        left->handler = nullptr;
        state_.release();
        state_ = std::move(fresh);
    }
    Spool::Impl& spool = state_->spool;
    CHECK_INVARIANT(spool.messages.valid(message));
    const MessageRow& row = spool.messages[message];
    state_->message = message;
    state_->segment = row.segment;
    state_->offset = row.offset;
    state_->payload_bytes = row.payload_bytes;
    state_->is_open = true;
    spool.segments.pin(row.segment);
    return state_->load_message();
}

std::string_view MessageReader::envelope() const { return state_->envelope; }
const MessageAttributes& MessageReader::attributes() const { return state_->attributes; }

MessageReader::Status MessageReader::next(std::string_view& octets) {
    CHECK_INVARIANT(state_->is_open);
    if (!state_->loaded)
        if (const Status status = state_->load_message(); status != Status::ready) return status;
    return state_->next(octets);
}

void MessageReader::close() { state_->close(); }

}  // namespace postern::storage
