// One commit being formed: frames in staging memory, sealed when the place where they will lie is known.
//
// Payload CRCs are computed while copying in; headers are written by seal(), so that a batch can be written at another
// place after a failure without touching its octets.  Pure; threads: the shard.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "storage/frame.hpp"

namespace postern::storage {

class Batch {
public:
    // Begins in `memory` and takes at most that much; whole blocks, frame_bytes_max at least.  Frames and index together fit a segment of `segment_bytes`.
    void begin(std::span<char> memory, uint64_t segment_bytes);
    bool begun() const { return !memory_.empty(); }
    bool empty() const { return frames_.empty(); }
    void reset();

    bool fits(uint64_t payload_bytes, uint64_t index_bytes) const;

    // A frame is added in pieces: open, put, close.  Only what fits() may be opened.
    class Payload {
    public:
        void put(std::string_view octets);
        template <class Struct>
        void put_struct(const Struct& value) {
            put({reinterpret_cast<const char*>(&value), sizeof value});
        }

    private:
        friend class Batch;
        char* at_ = nullptr;
        uint32_t left_ = 0;
        uint32_t crc_ = 0;
    };
    Payload open_frame(FrameType type, uint32_t payload_bytes, uint64_t index_bytes);
    size_t close_frame(const Payload& payload);     // returns the frame's number

    // Nobody will refer to this frame any more: it becomes a fragment, garbage that recycling collects.
    void disown(size_t frame) { frames_[frame].type = FrameType::fragment; }
    size_t frame_count() const { return frames_.size(); }
    FrameType type(size_t frame) const { return frames_[frame].type; }
    uint32_t at(size_t frame) const { return frames_[frame].at; }                       // in the batch
    uint32_t payload_bytes(size_t frame) const { return frames_[frame].payload_bytes; }
    std::span<char> payload(size_t frame);
    void update_payload_crc(size_t frame);          // after payload() was changed

    uint64_t bytes() const { return round_up(used_, block_bytes); }     // as written
    uint64_t index_bytes() const { return index_bytes_; }               // what its messages and records add to an index

    // Pads with zeros and writes the headers.  `first_ordinal`: of the batch's first message frame.
    std::span<const char> seal(uint64_t epoch, uint64_t offset, uint64_t batch, uint32_t first_ordinal);

private:
    struct Frame {
        uint32_t at = 0;
        uint32_t payload_bytes = 0;
        uint32_t payload_crc = 0;
        FrameType type = FrameType::fragment;
    };
    std::span<char> memory_;
    uint64_t segment_bytes_ = 0;
    uint64_t used_ = 0;
    uint64_t index_bytes_ = 0;
    std::vector<Frame> frames_;     // keeps its capacity from batch to batch
};

}  // namespace postern::storage
