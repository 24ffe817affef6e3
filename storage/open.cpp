// Spool::open(): recovery into memory.  Start-up only; blocks.
#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "ring/clock.hpp"
#include "ring/files.hpp"
#include "storage/recovery.hpp"
#include "storage/shard_folder.hpp"
#include "storage/spool_impl.hpp"

namespace postern::storage {
namespace {

SpoolFailure failure(int code, const std::string& what) {
    SpoolFailure result;
    if (code == ENOSPC || code == EDQUOT) result.gate = SpoolGate::no_space;
    if (code == EACCES || code == EPERM || code == EROFS) result.gate = SpoolGate::not_writable;
    result.error = os_error(code, what);
    return result;
}

SinkKind sink_for(SinkChoice choice, const std::string& folder) {
    switch (choice) {
        case SinkChoice::direct: return SinkKind::direct;
        case SinkChoice::buffered: return SinkKind::buffered;
        case SinkChoice::none: return SinkKind::none;
        case SinkChoice::automatic: break;
    }
    return takes_direct_writes(folder) ? SinkKind::direct : SinkKind::buffered;
}

// Our own folder, and those of shards that are no more and fall to us.
std::vector<std::string> folders_of(const SpoolConfig& config) {
    std::vector<std::string> folders{shard_folder(config.path, config.shard)};
    for (const unsigned shard : shards_in(config.path))
        if (shard >= config.shard_count && shard % config.shard_count == config.shard)
            folders.push_back(shard_folder(config.path, shard));
    return folders;
}

}  // namespace

Result<std::unique_ptr<Spool>, SpoolFailure> Spool::open(ring::Loop& loop, ring::Workers& housekeeping,
                                                         const SpoolDirectory& directory, const SpoolConfig& given,
                                                         SpoolProbe& probe) {
    const Monotonic began = ring::monotonic_now();
    SpoolConfig config = given;
    config.path = directory.path;
    config.segment_bytes =
        std::clamp(round_up(config.segment_bytes, block_bytes), segment_bytes_min, segment_bytes_max);
    const std::string own = shard_folder(config.path, config.shard);
    int error = ring::make_directory(own);
    if (!error) error = ring::sync_directory(config.path);
    if (error) return fail(failure(-error, "cannot make " + own));

    const SinkKind sink = sink_for(config.sink, own);
    auto impl = std::make_unique<Impl>(loop, housekeeping, config, directory.boot, sink, probe);
    Recovery found;
    struct Opened {
        std::string folder, name;
        UniqueFd fd;
    };
    std::vector<Opened> files;
    for (const std::string& folder : folders_of(config)) {
        if (const auto names = ring::list_directory(folder))
            for (const std::string& name : *names)
                if (is_unfinished_name(name)) ring::remove_file(folder + "/" + name);
        for (const std::string& name : segment_files_in(folder)) {
            const auto mode = sink == SinkKind::direct ? ring::OpenMode::read_write_direct : ring::OpenMode::read_write;
            auto file = ring::open_file(folder + "/" + name, mode);
            if (!file) return fail(failure(file.error().code, "cannot open " + folder + "/" + name));
            const auto bytes = ring::file_size(file->get());
            FileSource source(file->get(), bytes ? *bytes : 0);
            found.add(source, folder + "/" + name);
            files.push_back({folder, name, std::move(*file)});
        }
    }
    found.resolve();
    std::vector<uint32_t> pool_index(files.size(), no_segment);
    for (size_t i = 0; i < files.size(); ++i) {
        const FoundSegment& segment = found.segments()[i];
        if (segment.plan == SegmentPlan::ignore) continue;
        Segment entry;
        entry.folder = files[i].folder;
        entry.name = files[i].name;
        entry.fd = std::move(files[i].fd);
        entry.bytes = segment.bytes;
        entry.epoch = segment.epoch;
        entry.sequence = segment.sequence;
        entry.end = segment.end_offset;
        entry.message_total = segment.message_total;
        pool_index[i] = impl->segments.adopt(std::move(entry));
    }
    impl->take_over(found, pool_index);
    error = impl->segments.prepare();
    // A full disk does not stop what is stored from being delivered; that makes room.
    if (error && (error != -ENOSPC || impl->messages.size() == 0))
        return fail(failure(-error, "cannot make a segment in " + own));
    impl->segments.start_service();
    impl->report.took = ring::monotonic_now() - began;
    return std::unique_ptr<Spool>(new Spool(std::move(impl)));
}

void Spool::Impl::take_over(Recovery& found, const std::vector<uint32_t>& pool_index) {
    for (size_t i = 0; i < found.segments().size(); ++i) {
        const FoundSegment& segment = found.segments()[i];
        report.damaged_frames += segment.bad_spots.size();
        report.damaged_frames += segment.plan == SegmentPlan::ignore && segment.header == HeaderVerdict::damaged;
        if (pool_index[i] == no_segment) continue;
        ++report.segments;
        report.segments_scanned += segment.plan == SegmentPlan::scan;
        report.torn_tails += segment.torn_tail;
        for (const uint32_t subject : segment.subjects)
            if (subject != i && pool_index[subject] != no_segment)
                segments[pool_index[i]].subjects.push_back({pool_index[subject], found.segments()[subject].epoch});
    }
    if (report.damaged_frames) probe.damage_found(report.damaged_frames);
    for (const FoundMessage& message : found.messages()) {
        const bool wanted = message.verdict == MessageVerdict::pending || message.verdict == MessageVerdict::held ||
                            message.verdict == MessageVerdict::damaged;
        if (wanted) take_over_message(found, message, pool_index);
    }
    std::stable_sort(recovered.begin(), recovered.end(), [&](const RecoveredMessage& a, const RecoveredMessage& b) {
        return messages[a.index].received_ns < messages[b.index].received_ns;
    });
}

void Spool::Impl::take_over_message(Recovery& found, const FoundMessage& message,
                                    const std::vector<uint32_t>& pool_index) {
    const MessageIndex index = messages.add();
    MessageRow& row = messages[index];
    row.queue_id = message.queue_id;
    row.received_ns = message.received_ns;
    row.segment = pool_index[message.segment];
    row.offset = message.offset;
    row.payload_bytes = message.payload_bytes;
    row.ordinal = message.ordinal;
    row.recipient_count = row.pending_count = message.recipient_count;
    segments.link(messages, index);
    for (const Extent& extent : found.extents_of(message)) {
        const auto at = found.segment_of_epoch(extent.epoch);
        if (!at || pool_index[*at] == row.segment) continue;
        auto& others = messages.extent_segments(index);
        row.has_extents = true;
        if (std::find(others.begin(), others.end(), pool_index[*at]) != others.end()) continue;
        others.push_back(pool_index[*at]);
        segments.pin(pool_index[*at]);
    }
    RecoveredMessage entry;
    entry.index = index;
    entry.not_before.ns = INT64_MAX;
    const auto slots = found.slots_of(message);
    for (uint32_t recipient = 0; recipient < slots.size(); ++recipient) {
        const RecipientSlot& slot = messages.slot(index, recipient) = slots[recipient];
        row.pending_count -= slot.state != RecipientSlot::pending;
        row.any_failed |= slot.state == RecipientSlot::failed;
        if (slot.state != RecipientSlot::pending) continue;
        entry.attempts = std::max(entry.attempts, slot.attempt);
        entry.not_before.ns = std::min(entry.not_before.ns, int64_t{slot.until_s} * 1'000'000'000);
    }
    if (slots.empty()) entry.not_before.ns = 0;
    if (message.verdict == MessageVerdict::pending) {
        ++report.messages;
        recovered.push_back(entry);
        return;
    }
    row.state = MessageRow::State::held;
    ++held;
    ++report.held;
    report.messages_lost_to_damage += message.verdict == MessageVerdict::damaged;
}

std::string Spool::RecoveryReport::text() const {
    char line[256];
    std::snprintf(line, sizeof line,
                  "segments=%llu scanned=%llu messages=%llu held=%llu torn_tails=%llu damaged_frames=%llu "
                  "messages_damaged=%llu took=%.3fs",
                  static_cast<unsigned long long>(segments), static_cast<unsigned long long>(segments_scanned),
                  static_cast<unsigned long long>(messages), static_cast<unsigned long long>(held),
                  static_cast<unsigned long long>(torn_tails), static_cast<unsigned long long>(damaged_frames),
                  static_cast<unsigned long long>(messages_lost_to_damage), took.seconds());
    return line;
}

}  // namespace postern::storage
