#include "ring/files.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <thread>
#include <unistd.h>

namespace postern::ring {

namespace {

int result_of(int status) { return status < 0 ? -errno : 0; }

int open_flags(OpenMode mode) {
    switch (mode) {
        case OpenMode::read: return O_RDONLY;
        case OpenMode::read_write: return O_RDWR;
        case OpenMode::create_new: return O_RDWR | O_CREAT | O_EXCL;
        case OpenMode::read_write_direct: return O_RDWR | O_DIRECT;
    }
    return O_RDONLY;
}

constexpr int lock_attempts = 20;
constexpr auto lock_pause = std::chrono::milliseconds(50);

}  // namespace

Result<UniqueFd> open_file(const std::string& path, OpenMode mode, unsigned permissions) {
    const int fd = ::open(path.c_str(), open_flags(mode) | O_CLOEXEC, permissions);
    if (fd < 0) return fail(os_error(errno, "cannot open " + path));
    return UniqueFd(fd);
}

int read_at(int fd, uint64_t offset, std::span<char> into) {
    size_t done = 0;
    while (done < into.size()) {
        const ssize_t count =
            ::pread(fd, into.data() + done, into.size() - done, static_cast<off_t>(offset + done));
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return -errno;
        if (count == 0) break;      // the end
        done += static_cast<size_t>(count);
    }
    return static_cast<int>(done);
}

int write_at(int fd, uint64_t offset, std::span<const char> octets) {
    size_t done = 0;
    while (done < octets.size()) {
        const ssize_t count =
            ::pwrite(fd, octets.data() + done, octets.size() - done, static_cast<off_t>(offset + done));
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return -errno;
        if (count == 0) return -EIO;
        done += static_cast<size_t>(count);
    }
    return 0;
}

// A flush that failed is not repeated here: the kernel may have dropped the dirty pages, and a second one would lie.
int sync_data(int fd) { return result_of(::fdatasync(fd)); }
int sync_file(int fd) { return result_of(::fsync(fd)); }

int sync_directory(const std::string& path) {
    const UniqueFd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return directory ? sync_file(directory.get()) : -errno;
}

int set_file_size(int fd, uint64_t bytes) { return result_of(::ftruncate(fd, static_cast<off_t>(bytes))); }

Result<uint64_t> file_size(int fd) {
    struct stat status {};
    if (::fstat(fd, &status) < 0) return fail(os_error(errno, "cannot ask for a file's size"));
    return static_cast<uint64_t>(status.st_size);
}

int rename_file(const std::string& from, const std::string& to) {
    return result_of(::rename(from.c_str(), to.c_str()));
}
int link_file(const std::string& from, const std::string& to) { return result_of(::link(from.c_str(), to.c_str())); }
int remove_file(const std::string& path) { return result_of(::unlink(path.c_str())); }
int remove_directory(const std::string& path) { return result_of(::rmdir(path.c_str())); }

int make_directory(const std::string& path, unsigned permissions) {
    if (::mkdir(path.c_str(), permissions) == 0) return 0;
    const int error = errno;
    struct stat status {};
    if (error == EEXIST && ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) return 0;
    return -error;
}

int make_directories(const std::string& path, unsigned permissions) {
    for (size_t end = path.find('/', 1); end != std::string::npos; end = path.find('/', end + 1)) {
        // A parent on a read-only or foreign file system may be there without our being allowed to make it.
        if (const std::string parent = path.substr(0, end); !file_exists(parent))
            if (const int status = make_directory(parent, permissions); status < 0) return status;
    }
    return make_directory(path, permissions);
}

bool file_exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

Result<std::vector<std::string>> list_directory(const std::string& path) {
    DIR* directory = ::opendir(path.c_str());
    if (!directory) return fail(os_error(errno, "cannot list " + path));
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = ::readdir(directory)) {
        const std::string_view name = entry->d_name;
        if (name != "." && name != "..") names.emplace_back(name);
        errno = 0;
    }
    const int error = errno;
    ::closedir(directory);
    if (error) return fail(os_error(error, "cannot list " + path));
    std::sort(names.begin(), names.end());
    return names;
}

Result<std::string> read_file(const std::string& path, size_t bytes_max) {
    auto file = open_file(path, OpenMode::read);
    if (!file) return fail(file.error());
    std::string text;
    char piece[4096];
    // Files of /proc have no size: read until the end.
    for (;;) {
        const int count = read_at(file->get(), text.size(), piece);
        if (count < 0) return fail(os_error(-count, "cannot read " + path));
        text.append(piece, static_cast<size_t>(count));
        if (text.size() > bytes_max)
            return fail(Error{EFBIG, path + " is larger than " + std::to_string(bytes_max) + " octets"});
        if (static_cast<size_t>(count) < sizeof piece) return text;
    }
}

Result<UniqueFd> lock_file(const std::string& path) {
    UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!file) return fail(os_error(errno, "cannot open " + path));
    for (int attempt = 1;; ++attempt) {
        if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) return file;
        if (errno != EWOULDBLOCK && errno != EINTR) return fail(os_error(errno, "cannot lock " + path));
        if (attempt == lock_attempts) return fail(Error{EWOULDBLOCK, path + " is locked by another process"});
        std::this_thread::sleep_for(lock_pause);
    }
}

Result<FileSystemSpace> file_system_space(const std::string& path) {
    struct statvfs status {};
    if (::statvfs(path.c_str(), &status) < 0) return fail(os_error(errno, "cannot ask for the free space of " + path));
    return FileSystemSpace{uint64_t{status.f_bavail} * status.f_frsize, uint64_t{status.f_blocks} * status.f_frsize,
                           uint64_t{status.f_favail}};
}

uint64_t raise_descriptor_limit() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) < 0) return 0;
    if (limit.rlim_cur < limit.rlim_max) {
        const rlimit raised{limit.rlim_max, limit.rlim_max};
        if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) return raised.rlim_cur;
    }
    return limit.rlim_cur;
}

}  // namespace postern::ring
