#include "gateway/delivery/maildir.hpp"

#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <sys/resource.h>
#include <sys/stat.h>

#include "tests/support/temp_directory.hpp"

using namespace postern;
using namespace std::string_literals;
using gateway::MaildirMessage;
using gateway::MaildirWriter;
using test::content_of;
using test::names_in;
using test::TempDirectory;
using Names = std::vector<std::string>;

namespace {

const MaildirMessage message{"s@example.org", "r@example.net"};
const std::string header = "Return-Path: <s@example.org>\r\nDelivered-To: r@example.net\r\n";

struct Maildir {
    Maildir() { REQUIRE(MaildirWriter::prepare(root)); }
    Names tmp() const { return names_in(root + "/tmp"); }
    Names fresh() const { return names_in(root + "/new"); }

    TempDirectory directory;
    std::string root = directory / "mail/box";
};

unsigned mode_of(const std::string& path) {
    struct stat status {};
    REQUIRE(stat(path.c_str(), &status) == 0);
    return status.st_mode & 0777;
}

// No file may grow beyond `bytes` meanwhile: writing fails with EFBIG, as on a full disk it does with ENOSPC.
class FileSizeLimit {
public:
    explicit FileSizeLimit(rlim_t bytes) {
        std::signal(SIGXFSZ, SIG_IGN);
        getrlimit(RLIMIT_FSIZE, &before_);
        const rlimit limit{bytes, before_.rlim_max};
        setrlimit(RLIMIT_FSIZE, &limit);
    }
    ~FileSizeLimit() {
        setrlimit(RLIMIT_FSIZE, &before_);
        std::signal(SIGXFSZ, SIG_DFL);
    }

private:
    rlimit before_{};
};

}  // namespace

TEST_CASE("A Maildir is made with its parents, for its owner only, and may be there already", "[gateway][maildir]") {
    const Maildir maildir;
    CHECK(names_in(maildir.root) == Names{"cur", "new", "tmp"});
    for (const char* name : {"", "/cur", "/new", "/tmp"}) CHECK(mode_of(maildir.root + name) == 0700);
    CHECK(MaildirWriter::prepare(maildir.root));
}

TEST_CASE("A Maildir cannot be made below a file", "[gateway][maildir]") {
    const TempDirectory directory;
    std::ofstream(directory / "file") << "x";
    const auto prepared = MaildirWriter::prepare(directory / "file/box");
    REQUIRE_FALSE(prepared);
    CHECK(prepared.error().code == ENOTDIR);
}

TEST_CASE("A committed copy is in new, byte for byte behind our two header lines", "[gateway][maildir]") {
    const Maildir maildir;
    MaildirWriter writer;
    const std::string content = "Subject: x\r\n\r\n.dot\r\nbare\nnewline\0nul"s + std::string(1'000'000, 'b');
    REQUIRE(writer.open(maildir.root, "name", message));
    CHECK(maildir.tmp() == Names{"name"});
    for (size_t at = 0, bytes = 1; at < content.size(); at += bytes, bytes *= 3) {     // below, at and above the buffer's size
        REQUIRE(writer.append(std::string_view(content).substr(at, bytes)));
        CHECK(maildir.fresh() == Names{});
    }
    REQUIRE(writer.commit());
    CHECK(maildir.tmp() == Names{});
    CHECK(maildir.fresh() == Names{"name"});
    CHECK(content_of(maildir.root + "/new/name") == header + content);
    CHECK(mode_of(maildir.root + "/new/name") == 0600);
}

TEST_CASE("One writer makes many copies, one after the other", "[gateway][maildir]") {
    const Maildir maildir;
    MaildirWriter writer;
    for (const char* name : {"a", "b", "c"}) {
        REQUIRE(writer.open(maildir.root, name, {"", name}));
        REQUIRE(writer.append("x\r\n"));
        REQUIRE(writer.commit());
    }
    CHECK(maildir.fresh() == Names{"a", "b", "c"});
    CHECK(content_of(maildir.root + "/new/b") == "Return-Path: <>\r\nDelivered-To: b\r\nx\r\n");
}

TEST_CASE("A copy that is abandoned, or whose writer goes away, leaves nothing", "[gateway][maildir]") {
    const Maildir maildir;
    MaildirWriter writer;
    REQUIRE(writer.open(maildir.root, "abandoned", message));
    writer.abandon();
    CHECK(maildir.tmp() == Names{});
    {
        MaildirWriter other;
        REQUIRE(other.open(maildir.root, "forgotten", message));
        CHECK(maildir.tmp() == Names{"forgotten"});
    }
    CHECK(maildir.tmp() == Names{});
    CHECK(maildir.fresh() == Names{});
}

TEST_CASE("A name that is taken is never overwritten", "[gateway][maildir]") {
    const Maildir maildir;
    std::ofstream(maildir.root + "/new/name") << "first";
    MaildirWriter writer;
    REQUIRE(writer.open(maildir.root, "name", message));
    MaildirWriter rival;
    const auto opened = rival.open(maildir.root, "name", message);
    REQUIRE_FALSE(opened);
    CHECK(opened.error().code == EEXIST);

    REQUIRE(writer.append("second"));
    const auto committed = writer.commit();
    REQUIRE_FALSE(committed);
    CHECK(committed.error().code == EEXIST);
    CHECK(content_of(maildir.root + "/new/name") == "first");
    CHECK(maildir.tmp() == Names{});
}

TEST_CASE("A write that fails takes the copy with it and says why", "[gateway][maildir]") {
    const Maildir maildir;
    MaildirWriter writer;
    REQUIRE(writer.open(maildir.root, "name", message));
    {
        const FileSizeLimit limit(100'000);
        const auto appended = writer.append(std::string(300'000, 'x'));
        REQUIRE_FALSE(appended);
        CHECK(appended.error().code == EFBIG);
        CHECK_THAT(appended.error().text, Catch::Contains("tmp/name"));
    }
    CHECK(maildir.tmp() == Names{});
    REQUIRE(writer.open(maildir.root, "name", message));        // the writer is as new
    {
        const FileSizeLimit limit(10);
        const auto committed = writer.commit();
        REQUIRE_FALSE(committed);
        CHECK(committed.error().code == EFBIG);
    }
    CHECK(maildir.tmp() == Names{});
    CHECK(maildir.fresh() == Names{});
}

TEST_CASE("A Maildir that is gone is an error that names it", "[gateway][maildir]") {
    MaildirWriter writer;
    const auto opened = writer.open("/nonexistent", "name", message);
    REQUIRE_FALSE(opened);
    CHECK(opened.error().code == ENOENT);
    CHECK_THAT(opened.error().text, Catch::Contains("/nonexistent/tmp/name"));
}

TEST_CASE("An envelope cannot add header lines", "[gateway][maildir]") {
    const Maildir maildir;
    MaildirWriter writer;
    REQUIRE(writer.open(maildir.root, "name", {"s\r\nX: y", "r\nX: z"}));
    REQUIRE(writer.commit());
    CHECK(content_of(maildir.root + "/new/name") == "Return-Path: <s??X: y>\r\nDelivered-To: r?X: z\r\n");
}

TEST_CASE("A unique name tells time, queue id, recipient and host", "[gateway][maildir]") {
    const Wall now{1'757'073'600'000'042'000};
    CHECK(gateway::maildir_unique_name(now, "4F2a", 3, "mx.example.org") == "1757073600.M42Q4F2a_3.mx.example.org");
    CHECK(gateway::maildir_unique_name(now, "4F2a", 0, "a/b:c") == "1757073600.M42Q4F2a_0.a\\057b\\072c");
    const std::string cut = gateway::maildir_unique_name(now, "4F2a", 0, std::string(253, '/'));
    CHECK(cut.size() <= 200);
    CHECK(cut.ends_with("\\057"));
}
