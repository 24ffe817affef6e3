// The spool folder of the process: lock, meta file, boot number.  Start-up only.
#include <algorithm>
#include <cerrno>

#include "ring/files.hpp"
#include "storage/crc32c.hpp"
#include "storage/segment_reader.hpp"
#include "storage/shard_folder.hpp"
#include "storage/spool.hpp"

namespace postern::storage {
namespace {

// Each start takes this many boot numbers: a shard that uses up the 2^32 ids of one goes on with the next.
constexpr uint32_t boots_a_start = 64;

SpoolFailure failure(int code, const std::string& what, const std::string& remedy = {}) {
    SpoolFailure result;
    switch (code) {
        case ENOSPC:
        case EDQUOT: result.gate = SpoolGate::no_space; break;
        case EACCES:
        case EPERM:
        case EROFS: result.gate = SpoolGate::not_writable; break;
        default: break;
    }
    result.error = os_error(code, what);
    if (!remedy.empty()) result.error.text += "; " + remedy;
    return result;
}

enum class MetaVerdict : uint8_t { good, absent, damaged, other_format };
MetaVerdict read_meta(const std::string& path, MetaFile& meta) {
    if (!ring::file_exists(path)) return MetaVerdict::absent;
    const auto octets = ring::read_file(path, 4096);
    if (!octets || octets->size() < sizeof meta) return MetaVerdict::damaged;
    meta = load<MetaFile>(octets->data());
    if (meta.magic != meta_magic || meta.crc != crc32c(0, &meta, sizeof meta - sizeof meta.crc))
        return MetaVerdict::damaged;
    return meta.version == format_version ? MetaVerdict::good : MetaVerdict::other_format;
}

// A crash at any point leaves the old file or the new one.
int write_meta(const std::string& folder, uint32_t boot) {
    MetaFile meta;
    meta.boot = boot;
    meta.crc = crc32c(0, &meta, sizeof meta - sizeof meta.crc);
    const std::string path = folder + "/meta", unfinished = path + ".new";
    ring::remove_file(unfinished);
    const auto file = ring::open_file(unfinished, ring::OpenMode::create_new);
    if (!file) return -file.error().code;
    int error = ring::write_at(file->get(), 0, {reinterpret_cast<const char*>(&meta), sizeof meta});
    if (!error) error = ring::sync_file(file->get());
    if (!error) error = ring::rename_file(unfinished, path);
    return error ? error : ring::sync_directory(folder);
}

// Without a meta file: the first segment that a process writes to has a header of that process, so the highest boot number
// in any header is the highest whose ids may have been given out.
uint32_t highest_boot_in_segments(const std::string& spool) {
    uint32_t highest = 0;
    AlignedBuffer block(block_bytes);
    for (const unsigned shard : shards_in(spool)) {
        const std::string folder = shard_folder(spool, shard);
        for (const std::string& name : segment_files_in(folder)) {
            const auto file = ring::open_file(folder + "/" + name, ring::OpenMode::read);
            SegmentHeader header;
            if (file && ring::read_at(file->get(), 0, block.span()) == static_cast<int>(block_bytes) &&
                decode_segment_header({block.span().data(), block_bytes}, header) == HeaderVerdict::good)
                highest = std::max(highest, header.boot);
        }
    }
    return highest;
}

}  // namespace

Result<SpoolDirectory, SpoolFailure> open_directory(const std::string& path) {
    if (const int error = ring::make_directories(path))
        return fail(failure(-error, "cannot make the spool folder " + path, "let the service's user own it"));
    SpoolDirectory directory;
    directory.path = path;
    auto lock = ring::lock_file(path + "/lock");
    if (!lock) {
        SpoolFailure reason = failure(lock.error().code, "cannot lock the spool " + path);
        reason.error.text = lock.error().text;
        if (lock.error().code == EWOULDBLOCK) {
            reason.gate = SpoolGate::locked;
            reason.error.text += "; another postern uses this spool: stop it, or give this one a spool.path of its own";
        }
        return fail(reason);
    }
    directory.lock = std::move(*lock);

    MetaFile meta;
    switch (read_meta(path + "/meta", meta)) {
        case MetaVerdict::good: break;
        case MetaVerdict::other_format:
            return fail(SpoolFailure{
                SpoolGate::other_format,
                {0, "the spool " + path + " is of format " + std::to_string(meta.version) + ", this program reads " +
                        std::to_string(format_version) + "; let the program that wrote it deliver what is in it"}});
        case MetaVerdict::absent:
        case MetaVerdict::damaged: meta.boot = highest_boot_in_segments(path); break;
    }
    directory.boot = meta.boot + boots_a_start;
    if (directory.boot + boots_a_start > 0xffffff)
        return fail(
            SpoolFailure{SpoolGate::other, {0, "the spool " + path + " has run out of boot numbers; begin a new one"}});
    if (const int error = write_meta(path, directory.boot))
        return fail(failure(-error, "cannot write " + path + "/meta"));
    return directory;
}

}  // namespace postern::storage
