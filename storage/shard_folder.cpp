#include "storage/shard_folder.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "ring/files.hpp"
#include "storage/segment_reader.hpp"

namespace postern::storage {
namespace {

constexpr std::string_view folder_prefix = "shard-";
constexpr std::string_view segment_suffix = ".seg";
constexpr std::string_view unfinished_suffix = ".new";

int write_zeros(int fd, uint64_t bytes) {
    AlignedBuffer zeros(1_MiB);
    std::fill(zeros.span().begin(), zeros.span().end(), '\0');
    for (uint64_t at = 0; at < bytes; at += zeros.bytes()) {
        const auto piece = zeros.span().first(std::min<uint64_t>(zeros.bytes(), bytes - at));
        if (const int error = ring::write_at(fd, at, piece)) return error;
    }
    return ring::sync_file(fd);
}

}  // namespace

std::string shard_folder(const std::string& spool, unsigned shard) {
    char name[16];
    std::snprintf(name, sizeof name, "%03u", shard);
    return spool + "/" + std::string(folder_prefix) + name;
}

std::optional<unsigned> shard_of_folder(std::string_view name) {
    if (!name.starts_with(folder_prefix)) return std::nullopt;
    name.remove_prefix(folder_prefix.size());
    if (name.size() != 3) return std::nullopt;
    unsigned shard = 0;
    for (const char c : name) {
        if (c < '0' || c > '9') return std::nullopt;
        shard = shard * 10 + static_cast<unsigned>(c - '0');
    }
    return shard;
}

std::string segment_name(uint64_t number) {
    char name[24];
    std::snprintf(name, sizeof name, "%016llx", static_cast<unsigned long long>(number));
    return name + std::string(segment_suffix);
}
bool is_segment_name(std::string_view name) {
    return name.size() == 16 + segment_suffix.size() && name.ends_with(segment_suffix) &&
           name.find_first_not_of("0123456789abcdef") == 16;
}
bool is_unfinished_name(std::string_view name) { return name.ends_with(unfinished_suffix); }

std::vector<unsigned> shards_in(const std::string& spool) {
    std::vector<unsigned> shards;
    if (const auto names = ring::list_directory(spool))
        for (const std::string& name : *names)
            if (const auto shard = shard_of_folder(name)) shards.push_back(*shard);
    std::sort(shards.begin(), shards.end());
    return shards;
}

std::vector<std::string> segment_files_in(const std::string& folder) {
    std::vector<std::string> files;
    if (const auto names = ring::list_directory(folder))
        std::copy_if(names->begin(), names->end(), std::back_inserter(files), is_segment_name);
    return files;
}

int create_segment(const std::string& folder, const std::string& name, const SegmentHeader& header, bool direct) {
    const std::string path = folder + "/" + name, unfinished = path + std::string(unfinished_suffix);
    auto file = ring::open_file(unfinished, ring::OpenMode::create_new);
    if (file && direct) file = ring::open_file(unfinished, ring::OpenMode::read_write_direct);
    if (!file) return -file.error().code;
    int error = write_zeros(file->get(), header.segment_bytes);
    if (!error) error = write_segment_header(file->get(), header);
    if (!error) error = ring::rename_file(unfinished, path);
    if (!error) return ring::sync_directory(folder);        // the name itself must survive, too
    ring::remove_file(unfinished);
    return error;
}

int write_segment_header(int fd, const SegmentHeader& header) {
    AlignedBuffer block(block_bytes);
    encode_segment_header(header, block.span());
    const int error = ring::write_at(fd, 0, block.span());
    return error ? error : ring::sync_data(fd);
}

bool takes_direct_writes(const std::string& folder) {
    const std::string path = folder + "/probe" + std::string(unfinished_suffix);
    ring::remove_file(path);
    AlignedBuffer block(block_bytes);
    std::fill(block.span().begin(), block.span().end(), '\0');
    bool good = false;
    if (const auto file = ring::open_file(path, ring::OpenMode::create_new);
        file && !ring::write_at(file->get(), 0, block.span())) {
        const auto direct = ring::open_file(path, ring::OpenMode::read_write_direct);
        good = direct && !ring::sync_file(file->get()) && !ring::write_at(direct->get(), 0, block.span()) &&
               ring::read_at(direct->get(), 0, block.span()) == static_cast<int>(block_bytes);
    }
    ring::remove_file(path);
    return good;
}

}  // namespace postern::storage
