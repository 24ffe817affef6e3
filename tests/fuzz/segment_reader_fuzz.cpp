// Recovery on hostile segments: whatever the octets, it ends, stays inside its buffers, and says nothing impossible.
//
// A CRC stops random octets at once, so the input is a program that writes a segment: each step puts a frame whose payload
// the input chooses, sealed with right CRCs, or hurts what is there.  The input's first octet says whether an index is
// added, and whether the segment is read with an index or by force.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "storage/crc32c.hpp"
#include "storage/recovery.hpp"

using namespace postern;
using namespace postern::storage;

namespace {

constexpr uint64_t segment_size = segment_bytes_min;
constexpr uint64_t fuzz_epoch = 0x0123456789abcdef;

class Input {
public:
    Input(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}
    bool empty() const { return rest_.empty(); }
    uint8_t octet() { return rest_.empty() ? uint8_t{0} : static_cast<uint8_t>(take(1)[0]); }
    uint32_t number() { return uint32_t{octet()} << 8 | octet(); }
    std::string_view take(size_t bytes) {
        const auto part = rest_.substr(0, bytes);
        rest_.remove_prefix(part.size());
        return part;
    }

private:
    std::string_view rest_;
};

class Source final : public SegmentSource {
public:
    explicit Source(const std::vector<char>& octets) : octets_(octets) {}
    uint64_t bytes() const override { return octets_.size(); }
    bool read(uint64_t offset, std::span<char> into) override {
        if (offset > octets_.size() || into.size() > octets_.size() - offset) std::abort();
        std::memcpy(into.data(), octets_.data() + offset, into.size());
        return true;
    }

private:
    const std::vector<char>& octets_;
};

void put_frame(std::vector<char>& segment, uint64_t& at, uint64_t batch, uint32_t ordinal, uint8_t type,
               std::string_view payload) {
    if (at + frame_bytes(payload.size()) + 2 * block_bytes > segment.size()) return;
    FrameHeader header;
    header.type = type;
    header.payload_bytes = static_cast<uint32_t>(payload.size());
    header.ordinal = ordinal;
    header.batch = batch;
    header.payload_crc = crc32c(0, payload);
    seal_frame_header(header, fuzz_epoch, at);
    store(segment.data() + at, header);
    std::memcpy(segment.data() + at + frame_header_bytes, payload.data(), payload.size());
    at += frame_bytes(payload.size());
}

void put_index(std::vector<char>& segment, Input& input) {
    const std::string_view index = input.take(input.number());
    const uint64_t bytes = round_up(index.size(), block_bytes);
    SegmentTrailer trailer;
    trailer.epoch = fuzz_epoch;
    trailer.index_offset = static_cast<uint32_t>(segment.size() - block_bytes - bytes);
    trailer.index_bytes = static_cast<uint32_t>(index.size());
    trailer.entries_bytes = static_cast<uint32_t>(index.size() / 2);
    trailer.end_offset = batches_begin;
    std::memcpy(segment.data() + trailer.index_offset, index.data(), index.size());
    trailer.index_crc = seeded_crc(fuzz_epoch, trailer.index_offset, index.data(), index.size());
    encode_trailer(trailer, std::span(segment).last(block_bytes));
}

void write_segment(std::vector<char>& segment, Input& input) {
    SegmentHeader header;
    header.epoch = fuzz_epoch;
    header.segment_bytes = segment.size();
    encode_segment_header(header, std::span(segment).first(block_bytes));
    uint64_t at = batches_begin, batch = 1;
    uint32_t ordinal = 0;
    while (!input.empty()) {
        const uint8_t step = input.octet();
        switch (step % 8) {
            case 0:     // end of a batch
                at = round_up(at, block_bytes);
                batch += 1 + step / 64;
                break;
            case 1:     // hurt an octet
                segment[batches_begin + input.number() * 7 % (segment.size() - batches_begin)] ^=
                    static_cast<char>(1 + input.octet());
                break;
            case 2: ordinal += input.number(); break;
            default:
                put_frame(segment, at, batch, ordinal++, step / 32, input.take(input.number() % 2048));
                break;
        }
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    Input input(data, size);
    const uint8_t mode = input.octet();
    std::vector<char> segment(segment_size);
    if (mode & 1) put_index(segment, input);
    write_segment(segment, input);
    Source source(segment);
    Recovery recovery((mode & 2) != 0);
    recovery.add(source, "fuzz");
    recovery.resolve();
    for (const FoundMessage& message : recovery.messages()) {
        if (message.offset + frame_bytes(message.payload_bytes) > segment.size()) std::abort();
        if (message.verdict == MessageVerdict::pending)
            for (const Extent& extent : recovery.extents_of(message))
                if (!recovery.segment_of_epoch(extent.epoch)) std::abort();
    }
    return 0;
}
