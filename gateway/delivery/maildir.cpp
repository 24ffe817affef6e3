#include "gateway/delivery/maildir.hpp"

#include <algorithm>
#include <vector>

#include "ring/base/check.hpp"
#include "ring/files.hpp"

namespace postern::gateway {

namespace {

constexpr uint64_t buffer_bytes_max = 256_KiB;
constexpr size_t name_bytes_max = 200;      // of 255: a reader appends ":2,flags"

std::string parent_of(const std::string& path) {
    const size_t slash = path.find_last_of('/');
    return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

// The directories that get a new name when `path` and its missing parents are made.
std::vector<std::string> directories_to_change(std::string path) {
    std::vector<std::string> changed;
    while (!ring::file_exists(path) && path != "." && path != "/") {
        path = parent_of(path);
        changed.push_back(path);
    }
    return changed;
}

void append_without_control(std::string& out, std::string_view octets) {
    for (const char c : octets) out += static_cast<uint8_t>(c) < 0x20 || c == 0x7F ? '?' : c;
}

}  // namespace

std::string maildir_unique_name(Wall now, std::string_view queue_id, size_t recipient_index, std::string_view hostname) {
    const int64_t microseconds = now.ns / 1000 % 1'000'000;
    std::string name = std::to_string(now.seconds()) + ".M" + std::to_string(microseconds) + "Q";
    name.append(queue_id).append("_").append(std::to_string(recipient_index)).append(".");
    for (const char c : hostname) {
        if (name.size() + 4 > name_bytes_max) break;
        if (c == '/') {
            name += "\\057";
        } else if (c == ':') {
            name += "\\072";
        } else {
            name += c;
        }
    }
    return name;
}

Result<void> MaildirWriter::prepare(const std::string& root) {
    std::vector<std::string> changed = directories_to_change(root);
    if (const int code = ring::make_directories(root, 0700); code < 0) return fail(os_error(-code, "cannot make " + root));
    for (const char* name : {"/tmp", "/new", "/cur"}) {
        const std::string path = root + name;
        if (const int code = ring::make_directory(path, 0700); code < 0) return fail(os_error(-code, "cannot make " + path));
    }
    changed.insert(changed.begin(), root);
    for (const std::string& path : changed) {
        if (const int code = ring::sync_directory(path); code < 0) return fail(os_error(-code, "cannot sync " + path));
    }
    return {};
}

MaildirWriter::~MaildirWriter() { abandon(); }

Result<void> MaildirWriter::open(const std::string& root, std::string_view unique_name, const MaildirMessage& message) {
    CHECK_INVARIANT(tmp_path_.empty());
    const std::string tmp_path = root + "/tmp/" + std::string(unique_name);
    auto opened = ring::open_file(tmp_path, ring::OpenMode::create_new, 0600);
    if (!opened) return fail(opened.error());
    file_ = std::move(*opened);
    tmp_path_ = tmp_path;
    new_directory_ = root + "/new";
    new_path_ = new_directory_ + "/" + std::string(unique_name);
    written_ = 0;
    buffer_ = "Return-Path: <";
    append_without_control(buffer_, message.sender);
    buffer_ += ">\r\nDelivered-To: ";
    append_without_control(buffer_, message.recipient);
    buffer_ += "\r\n";
    return {};
}

Result<void> MaildirWriter::append(std::string_view octets) {
    CHECK_INVARIANT(!tmp_path_.empty());
    if (buffer_.size() + octets.size() > buffer_bytes_max) {
        if (auto done = write_out(buffer_); !done) return done;
        buffer_.clear();
        if (octets.size() > buffer_bytes_max) return write_out(octets);
    }
    buffer_.append(octets);
    return {};
}

Result<void> MaildirWriter::write_out(std::string_view octets) {
    if (const int code = ring::write_at(file_.get(), written_, octets); code < 0) return failed(-code, "cannot write");
    written_ += octets.size();
    return {};
}

Result<void> MaildirWriter::commit() {
    CHECK_INVARIANT(!tmp_path_.empty());
    if (auto done = write_out(buffer_); !done) return done;
    // The octets are durable before the name is: a crash in between leaves a file in tmp/, which no reader looks at.
    if (const int code = ring::sync_file(file_.get()); code < 0) return failed(-code, "cannot sync");
    if (const int code = ring::link_file(tmp_path_, new_path_); code < 0) return failed(-code, "cannot move to new/");
    if (const int code = ring::sync_directory(new_directory_); code < 0) {
        // We may not call it delivered, so it is taken back: the retry would make it two.
        ring::remove_file(new_path_);
        return failed(-code, "cannot sync new/ after");
    }
    abandon();      // the name in tmp/ only
    return {};
}

void MaildirWriter::abandon() {
    if (tmp_path_.empty()) return;
    file_.reset();
    ring::remove_file(tmp_path_);       // when it fails, a stray file stays in tmp/: readers clear those after 36 hours
    tmp_path_.clear();
    buffer_.clear();
}

Result<void> MaildirWriter::failed(int code, const std::string& what) {
    Error error = os_error(code, what + " " + tmp_path_);
    abandon();
    return fail(std::move(error));
}

}  // namespace postern::gateway
