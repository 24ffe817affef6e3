#include "storage/segments.hpp"

#include <algorithm>
#include <cerrno>

#include "ring/clock.hpp"
#include "ring/files.hpp"
#include "storage/segment_work.hpp"
#include "storage/shard_folder.hpp"

namespace postern::storage {

SegmentPool::SegmentPool(ring::Loop& loop, ring::Workers& housekeeping, const SpoolConfig& config, uint32_t boot,
                         bool direct, SegmentEvents& events, SpoolProbe& probe)
    : loop_(loop),
      housekeeping_(housekeeping),
      config_(config),
      boot_(boot),
      direct_(direct),
      events_(events),
      probe_(probe),
      folder_(shard_folder(config.path, config.shard)) {
    if (const auto space = ring::file_system_space(folder_)) bytes_free_ = space->bytes_free;
}

SegmentPool::~SegmentPool() = default;

void SegmentPool::wait_for_work() {
    const Monotonic deadline = ring::monotonic_now() + seconds(5);
    while (!running_.empty() && ring::monotonic_now() < deadline) loop_.run_turn(milliseconds(5));
    for (auto& work : running_) work.release()->forget();       // the workers never ran it, or hang
    running_.clear();
}

uint32_t SegmentPool::adopt(Segment segment) {
    segment.state = Segment::State::sealed;
    next_sequence_ = std::max(next_sequence_, segment.sequence + 1);
    segments_.push_back(std::make_unique<Segment>(std::move(segment)));
    return static_cast<uint32_t>(segments_.size() - 1);
}

int SegmentPool::prepare() {
    for (uint32_t i = 0; i < segments_.size() && spares_.empty(); ++i) {
        Segment& segment = *segments_[i];
        const bool reusable = segment.state == Segment::State::sealed && segment.pins == 0 &&
                              segment.subjects.empty() && segment.bytes == config_.segment_bytes &&
                              segment.folder == folder_;
        if (!reusable) continue;
        const SegmentHeader header = new_header(segment.bytes);
        if (write_segment_header(segment.fd.get(), header)) continue;
        begin_life(segment, header);
        spares_.push_back(i);
    }
    int error = 0;
    if (spares_.empty()) {
        if (!can_grow()) return -ENOSPC;
        Segment segment;
        const SegmentHeader header = new_header(config_.segment_bytes);
        segment.folder = folder_;
        segment.name = segment_name(header.sequence);
        segment.bytes = header.segment_bytes;
        error = create_segment(folder_, segment.name, header, direct_);
        if (!error) error = open_segment(segment);
        if (error) return error;
        begin_life(segment, header);
        segments_.push_back(std::make_unique<Segment>(std::move(segment)));
        spares_.push_back(static_cast<uint32_t>(segments_.size() - 1));
    }
    return error;
}

void SegmentPool::start_service() { on_tick(); }

int SegmentPool::open_segment(Segment& segment) {
    auto file =
        ring::open_file(segment.path(), direct_ ? ring::OpenMode::read_write_direct : ring::OpenMode::read_write);
    if (!file) return -file.error().code;
    segment.fd = std::move(*file);
    return 0;
}

SegmentHeader SegmentPool::new_header(uint64_t bytes) {
    SegmentHeader header;
    header.epoch = ring::random_seed();
    header.sequence = next_sequence_++;
    header.segment_bytes = bytes;
    header.shard = config_.shard;
    header.boot = boot_;
    return header;
}

void SegmentPool::begin_life(Segment& segment, const SegmentHeader& header) {
    segment.state = Segment::State::spare;
    segment.draining = false;
    segment.epoch = header.epoch;
    segment.sequence = header.sequence;
    segment.life = 0;
    segment.end = batches_begin;
    segment.batch_count = 0;
    segment.message_total = 0;
    segment.subjects.clear();
}

uint32_t SegmentPool::find(uint64_t epoch) const {
    for (uint32_t i = 0; i < segments_.size(); ++i)
        if (segments_[i]->epoch == epoch && segments_[i]->state != Segment::State::gone) return i;
    return no_segment;
}

// ---- Writing ----------------------------------------------------------------------------------------------------------

bool SegmentPool::make_room(uint64_t batch_bytes, uint64_t index_bytes) {
    if (active_ != no_segment) {
        const Segment& segment = *segments_[active_];
        if (segment.end + batch_bytes + IndexBuilder::footprint_of(index_.bytes() + index_bytes) <= segment.bytes)
            return true;
        if (spares_.empty()) return false;
        seal_active();
    }
    if (spares_.empty()) return false;
    activate(spares_.front());
    spares_.pop_front();
    keep_spares();
    return true;
}

void SegmentPool::activate(uint32_t index) {
    Segment& segment = *segments_[index];
    CHECK_INVARIANT(segment.state == Segment::State::spare && segment.pins == 0);
    segment.state = Segment::State::active;
    segment.life = ++lives_;
    active_ = index;
    index_.clear();
}

void SegmentPool::advance(uint64_t batch_bytes, uint32_t message_count) {
    Segment& segment = *segments_[active_];
    segment.end += static_cast<uint32_t>(batch_bytes);
    segment.message_total += message_count;
    ++segment.batch_count;
}

// The index is written behind our back, off the commit path: without it recovery scans, so nobody waits for it.
void SegmentPool::seal_active() {
    Segment& segment = *segments_[active_];
    segment.state = Segment::State::sealed;
    SegmentTrailer trailer;
    trailer.epoch = segment.epoch;
    trailer.sequence = segment.sequence;
    trailer.batch_count = static_cast<uint32_t>(segment.batch_count);
    trailer.end_offset = segment.end;
    trailer.shard = config_.shard;
    trailer.boot = boot_;
    auto work = std::make_unique<Work>(*this, Work::Kind::write_index, active_);
    work->index = AlignedBuffer(index_.footprint());
    index_.encode(trailer, segment.bytes, work->index.span());
    start(std::move(work));
    const uint32_t sealed = std::exchange(active_, no_segment);
    check_drained(sealed);
}

void SegmentPool::fail_active() {
    if (active_ == no_segment) return;
    segments_[active_]->state = Segment::State::failed;
    const uint32_t failed = std::exchange(active_, no_segment);
    check_drained(failed);
    keep_spares();
}

// ---- Life and death -----------------------------------------------------------------------------------------------------

void SegmentPool::unpin(uint32_t index) {
    CHECK_INVARIANT(segments_[index]->pins > 0);
    --segments_[index]->pins;
    check_drained(index);
}

void SegmentPool::check_drained(uint32_t index) {
    Segment& segment = *segments_[index];
    const bool over = segment.state == Segment::State::sealed || segment.state == Segment::State::failed;
    if (!over || segment.pins > 0 || segment.draining || segment.job_running) return;
    segment.draining = true;
    events_.on_drained(index);
}

void SegmentPool::link(MessageTable& messages, uint32_t message) {
    MessageRow& row = messages[message];
    Segment& segment = *segments_[row.segment];
    row.previous = segment.last_message;
    row.next = no_message;
    (segment.last_message == no_message ? segment.first_message : messages[segment.last_message].next) = message;
    segment.last_message = message;
    ++segment.pins;
}

void SegmentPool::unlink(MessageTable& messages, uint32_t message) {
    const MessageRow& row = messages[message];
    Segment& segment = *segments_[row.segment];
    (row.previous == no_message ? segment.first_message : messages[row.previous].next) = row.next;
    (row.next == no_message ? segment.last_message : messages[row.next].previous) = row.previous;
    unpin(row.segment);
}

void SegmentPool::reuse(uint32_t index) {
    Segment& segment = *segments_[index];
    CHECK_INVARIANT(segment.draining && segment.pins == 0 && !segment.job_running);
    const bool wanted = segment.state == Segment::State::sealed && segment.bytes == config_.segment_bytes &&
                        idle_count() < config_.spare_segments + slack;
    auto work = std::make_unique<Work>(*this, wanted ? Work::Kind::recycle : Work::Kind::remove, index);
    if (wanted) work->header = new_header(segment.bytes);
    const auto before = segment.state;
    segment.state = wanted ? Segment::State::recycling : Segment::State::removing;
    if (start(std::move(work))) {
        soon_ += wanted;
    } else {
        segment.state = before;
        segment.draining = false;       // on_tick() comes back to it
    }
}

bool SegmentPool::can_grow() const { return bytes_free_ >= config_.reserve_bytes + config_.segment_bytes; }

void SegmentPool::keep_spares() {
    while (!creation_failed_ && can_grow() && idle_count() < config_.spare_segments) {
        const uint32_t index = unused_slot();
        Segment& segment = *segments_[index];
        auto work = std::make_unique<Work>(*this, Work::Kind::create, index);
        work->header = new_header(config_.segment_bytes);
        segment.folder = folder_;
        segment.name = segment_name(work->header.sequence);
        segment.bytes = config_.segment_bytes;
        if (!start(std::move(work))) return;
        segment.state = Segment::State::creating;
        ++soon_;
        bytes_free_ -= config_.segment_bytes;                   // until the next look
    }
}

uint32_t SegmentPool::unused_slot() {
    for (uint32_t i = 0; i < segments_.size(); ++i)
        if (segments_[i]->state == Segment::State::gone) return i;
    segments_.push_back(std::make_unique<Segment>());
    return static_cast<uint32_t>(segments_.size() - 1);
}

void SegmentPool::on_tick() {
    creation_failed_ = false;
    start(std::make_unique<Work>(*this, Work::Kind::look_at_space, no_segment));
    for (uint32_t i = 0; i < segments_.size(); ++i) check_drained(i);
}

bool SegmentPool::start(std::unique_ptr<Work> work) {
    if (work->segment != no_segment) work->take_over(*segments_[work->segment]);
    if (!housekeeping_.post(config_.housekeeping_loop, *work, config_.shard)) {
        if (work->segment != no_segment) segments_[work->segment]->job_running = false;
        return false;
    }
    running_.push_back(std::move(work));
    return true;
}

void SegmentPool::on_work_done(Work& work) {
    const auto at =
        std::find_if(running_.begin(), running_.end(), [&](const auto& other) { return other.get() == &work; });
    const std::unique_ptr<Work> owned = std::move(*at);
    running_.erase(at);
    if (work.kind == Work::Kind::look_at_space) {
        if (work.result == 0) bytes_free_ = work.bytes_free;
        keep_spares();
        return;
    }
    Segment& segment = *segments_[work.segment];
    segment.job_running = false;
    switch (work.kind) {
        case Work::Kind::create:
        case Work::Kind::recycle:
            --soon_;
            if (work.result == 0) {
                if (work.opened) segment.fd = std::move(work.opened);
                segment.folder = folder_;
                segment.name = work.name;
                begin_life(segment, work.header);
                spares_.push_back(work.segment);
                if (work.kind == Work::Kind::recycle) probe_.segment_recycled();
                events_.on_segment_ready();
            } else if (work.kind == Work::Kind::create) {
                segment.state = Segment::State::gone;
                creation_failed_ = true;
            } else {
                segment.state = Segment::State::failed;         // its header may be half written: not to be used again
                segment.draining = false;
            }
            break;
        case Work::Kind::remove:
            segment.fd.reset();
            segment.state = Segment::State::gone;
            segment.epoch = 0;
            break;
        case Work::Kind::write_index: break;
        case Work::Kind::look_at_space: break;
    }
    check_drained(work.segment);
}

// ---- Accounts -----------------------------------------------------------------------------------------------------------

uint64_t SegmentPool::bytes_available() const {
    uint64_t bytes = 0;
    if (active_ != no_segment) {
        const Segment& segment = *segments_[active_];
        const uint64_t taken = segment.end + index_.footprint() + block_bytes;
        bytes = segment.bytes > taken ? (segment.bytes - taken) / 32 * 31 : 0;
    }
    uint64_t whole = idle_count();
    if (!creation_failed_ && bytes_free_ > config_.reserve_bytes)
        whole += (bytes_free_ - config_.reserve_bytes) / config_.segment_bytes;
    return whole > 1 ? bytes + (whole - 1) * bytes_usable(config_.segment_bytes) : bytes;
}

void SegmentPool::fill_status(SpoolStatus& status) const {
    for (const auto& segment : segments_) {
        switch (segment->state) {
            case Segment::State::spare: ++status.segments_ready; break;
            case Segment::State::active: ++status.segments_active; break;
            case Segment::State::sealed:
            case Segment::State::recycling: ++status.segments_sealed; break;
            case Segment::State::failed:
            case Segment::State::removing: ++status.segments_failed; break;
            case Segment::State::creating: break;
            case Segment::State::gone: continue;
        }
        status.bytes_allocated += segment->bytes;
    }
    status.bytes_available = bytes_available();
}

}  // namespace postern::storage
