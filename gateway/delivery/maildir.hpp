// A Maildir as the end of a route: one file for each recipient's copy, whole and durable, or not there at all.
//
// The file grows in tmp/, is synced, and gets its name in new/ by link(2), which never overwrites; then the directory is
// synced.  The octets are stored as they came, so lines end in CRLF; our two header lines do as well.
//
// Threads: a worker's (everything blocks); one writer is used by one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ring/base/result.hpp"
#include "ring/base/unique_fd.hpp"
#include "ring/base/units.hpp"

namespace postern::gateway {

struct MaildirMessage {
    std::string_view sender;            // "" for the null sender
    std::string_view recipient;
};

// "1757073600.M42Q4F2a_3.mx.example.org": second, microsecond, queue id, recipient index, host.  Unique, since a queue id is
// never used again; a second delivery of the same copy after a crash is recognised by the same queue id and index.  In the
// host name '/' and ':' are written as the Maildir convention says (\057, \072); it is cut so that a reader has room for
// its flags.
std::string maildir_unique_name(Wall now, std::string_view queue_id, size_t recipient_index, std::string_view hostname);

class MaildirWriter {
public:
    // Makes `root` (and its parents), tmp, new and cur where they are missing, mode 0700, and makes that durable.
    static Result<void> prepare(const std::string& root);

    MaildirWriter() = default;
    MaildirWriter(const MaildirWriter&) = delete;
    ~MaildirWriter();                   // abandon()

    // In order: open(), append() any number of times, commit().  After a failure the copy is gone; the Error's code tells
    // ENOSPC and EDQUOT from other trouble, EEXIST says that the name is taken.
    Result<void> open(const std::string& root, std::string_view unique_name, const MaildirMessage& message);
    Result<void> append(std::string_view octets);       // buffered
    Result<void> commit();              // success: the copy is in new/ and survives a crash
    void abandon();                     // leaves nothing behind

private:
    Result<void> write_out(std::string_view octets);
    Result<void> failed(int code, const std::string& what);

    UniqueFd file_;
    std::string tmp_path_;              // empty when nothing is under way
    std::string new_path_;
    std::string new_directory_;
    std::string buffer_;
    uint64_t written_ = 0;
};

}  // namespace postern::gateway
