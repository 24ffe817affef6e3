#include "storage/segment_work.hpp"

#include "ring/files.hpp"
#include "storage/shard_folder.hpp"

namespace postern::storage {

void SegmentPool::Work::take_over(Segment& of) {
    of.job_running = true;
    folder_ = of.folder;
    name = of.name;
    fd_ = of.fd.get();
    bytes_ = of.bytes;
}

void SegmentPool::Work::run() {
    switch (kind) {
        case Kind::create: result = create(); break;
        case Kind::recycle: result = recycle(); break;
        case Kind::write_index: result = write_index(); break;
        case Kind::remove: result = remove(); break;
        case Kind::look_at_space: {
            const auto space = ring::file_system_space(own_folder_);
            if (space) bytes_free = space->bytes_free;
            else result = -space.error().code;
            break;
        }
    }
}

void SegmentPool::Work::done() {
    if (pool_) pool_->on_work_done(*this);
    else delete this;
}

int SegmentPool::Work::open(const std::string& path) {
    auto file = ring::open_file(path, direct_ ? ring::OpenMode::read_write_direct : ring::OpenMode::read_write);
    if (!file) return -file.error().code;
    opened = std::move(*file);
    return 0;
}

int SegmentPool::Work::create() {
    const int error = create_segment(own_folder_, name, header, direct_);
    return error ? error : open(own_folder_ + "/" + name);
}

// The new header first, then the move: at no moment does a file that still says something have a new name.
int SegmentPool::Work::recycle() {
    if (const int error = write_segment_header(fd_, header)) return error;
    if (folder_ == own_folder_) return 0;
    const std::string from = folder_ + "/" + name;
    name = segment_name(header.sequence);
    int error = ring::rename_file(from, own_folder_ + "/" + name);
    if (!error) error = ring::sync_directory(own_folder_);
    if (!error) error = ring::sync_directory(folder_);
    if (!error) remove_folder_when_empty();
    return error;
}

int SegmentPool::Work::write_index() {
    const int error = ring::write_at(fd_, bytes_ - index.bytes(), index.span());
    return error ? error : ring::sync_data(fd_);
}

int SegmentPool::Work::remove() {
    int error = ring::remove_file(folder_ + "/" + name);
    if (!error) error = ring::sync_directory(folder_);
    if (folder_ != own_folder_) remove_folder_when_empty();
    return error;
}

// Of a shard that is no more.  Another file in it, whatever it is, keeps it.
void SegmentPool::Work::remove_folder_when_empty() {
    if (const auto names = ring::list_directory(folder_); names && names->empty()) ring::remove_directory(folder_);
}

}  // namespace postern::storage
