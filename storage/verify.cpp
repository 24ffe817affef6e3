#include "storage/verify.hpp"

#include <algorithm>

#include "ring/files.hpp"
#include "storage/recovery.hpp"
#include "storage/shard_folder.hpp"

namespace postern::storage {
namespace {

const char* header_complaint(const FoundSegment& segment) {
    switch (segment.header) {
        case HeaderVerdict::good:
            return segment.plan == SegmentPlan::ignore ? "copy of another segment, ignored" : nullptr;
        case HeaderVerdict::not_a_segment: return "not a segment, ignored";
        case HeaderVerdict::other_format: return "of another format, ignored";
        case HeaderVerdict::damaged: return "header is damaged";
    }
    return nullptr;
}

SpoolReport::Segment describe(const FoundSegment& found) {
    SpoolReport::Segment segment;
    segment.path = found.name;
    segment.sequence = found.sequence;
    segment.frames = found.frames;
    segment.messages = found.message_count;
    segment.results = found.record_count;
    segment.bytes_used = found.end_offset;
    segment.bytes_total = found.bytes;
    segment.sealed = found.plan == SegmentPlan::use_index;
    segment.torn_tail = found.torn_tail;
    if (const char* complaint = header_complaint(found)) segment.damage.emplace_back(complaint);
    for (const BadSpot& spot : found.bad_spots)
        segment.damage.push_back("at " + std::to_string(spot.offset) + ": " + spot.what);
    return segment;
}

}  // namespace

bool SpoolReport::intact() const {
    return damaged == 0 &&
           std::all_of(segments.begin(), segments.end(), [](const Segment& segment) { return segment.damage.empty(); });
}

Result<SpoolReport> verify_spool(const std::string& path) {
    if (const auto names = ring::list_directory(path); !names) return fail(names.error());
    Recovery recovery(true);
    for (const unsigned shard : shards_in(path)) {
        const std::string folder = shard_folder(path, shard);
        for (const std::string& name : segment_files_in(folder)) {
            const auto file = ring::open_file(folder + "/" + name, ring::OpenMode::read);
            if (!file) return fail(file.error());
            const auto bytes = ring::file_size(file->get());
            if (!bytes) return fail(bytes.error());
            FileSource source(file->get(), *bytes);
            recovery.add(source, folder + "/" + name);
        }
    }
    recovery.resolve();
    SpoolReport report;
    for (const FoundSegment& segment : recovery.segments()) {
        report.segments.push_back(describe(segment));
        report.bytes_used += segment.end_offset;
        report.bytes_total += segment.bytes;
    }
    for (const FoundMessage& message : recovery.messages()) {
        ++report.messages;
        switch (message.verdict) {
            case MessageVerdict::pending: ++report.pending; break;
            case MessageVerdict::held: ++report.held; break;
            case MessageVerdict::complete: ++report.delivered; break;
            case MessageVerdict::damaged: ++report.damaged; break;
            case MessageVerdict::dropped: --report.messages; break;        // never acknowledged
        }
        if (message.verdict == MessageVerdict::pending || message.verdict == MessageVerdict::held)
            report.bytes_live += message.message_bytes;
    }
    return report;
}

}  // namespace postern::storage
