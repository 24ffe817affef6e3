// Addresses, listening sockets, files and CPUs.
#include "tests/ring/fixture.hpp"

#include <algorithm>

#include "ring/files.hpp"
#include "ring/threads.hpp"

using namespace postern;
using namespace postern::ring;
using namespace postern::ring::test;

TEST_CASE("Socket addresses are read and written in their usual forms", "[sockets]") {
    for (const char* text : {"127.0.0.1:2525", "0.0.0.0:0", "[::1]:2525", "[2001:db8::1]:65535", "[::]:25"}) {
        const auto address = parse_socket_address(text);
        REQUIRE(address);
        CHECK(address->text() == text);
    }
    CHECK(parse_socket_address("*:25")->text() == "[::]:25");
    CHECK(parse_host_address("2001:DB8::1")->host_text() == "2001:db8::1");
}

TEST_CASE("What is no numeric address is refused with its text", "[sockets]") {
    for (const char* text : {"", "localhost:25", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:25x",
                             "::1:25", "[::1]", "[127.0.0.1]:25", "[*]:25", "256.0.0.1:25"}) {
        const auto address = parse_socket_address(text);
        CAPTURE(text);
        REQUIRE_FALSE(address);
        CHECK(address.error().text.find(text) != std::string::npos);
    }
    CHECK_FALSE(parse_host_address("example.org"));
}

TEST_CASE("Listening on all addresses serves IPv4, whose peers look like IPv4", "[sockets]") {
    auto listening = listen_on(*parse_socket_address("*:0"), 8);
    REQUIRE(listening);
    Peer peer = Peer::connect(*bound_port(listening->get()));
    REQUIRE(peer);
    UniqueFd ours(::accept4(listening->get(), nullptr, nullptr, SOCK_CLOEXEC));
    CHECK(peer_address(ours.get()).host_text() == "127.0.0.1");
    CHECK(peer_address(ours.get()).family == SocketAddress::Family::ipv4);
    int no_delay = 0;
    socklen_t length = sizeof no_delay;
    ::getsockopt(ours.get(), IPPROTO_TCP, TCP_NODELAY, &no_delay, &length);
    CHECK(no_delay != 0);      // inherited from the listener
}

TEST_CASE("Two listeners share a port, and an address that is not ours is an error", "[sockets]") {
    auto first = listen_on_loopback();
    REQUIRE(first);
    CHECK(listen_on(local_address(first->get()), 8));
    const auto foreign = listen_on(*parse_socket_address("192.0.2.1:2525"), 8);
    REQUIRE_FALSE(foreign);
    CHECK(foreign.error().text.find("192.0.2.1:2525") != std::string::npos);
}

TEST_CASE("Files are made, read, locked, renamed and listed", "[files]") {
    const std::string root = "files_test_" + std::to_string(::getpid());
    REQUIRE(make_directories(root + "/a/b") == 0);
    REQUIRE(make_directories(root + "/a/b") == 0);
    const std::string path = root + "/a/one";
    {
        auto file = open_file(path, OpenMode::create_new);
        REQUIRE(file);
        CHECK_FALSE(open_file(path, OpenMode::create_new));
        CHECK(write_at(file->get(), 0, std::string_view("hello, world")) == 0);
        CHECK(set_file_size(file->get(), 5) == 0);
        CHECK(*file_size(file->get()) == 5);
        char text[10];
        CHECK(read_at(file->get(), 1, text) == 4);
        CHECK(std::string_view(text, 4) == "ello");
        CHECK(sync_data(file->get()) == 0);
    }
    CHECK(sync_directory(root + "/a") == 0);
    CHECK(*read_file(path, 5) == "hello");
    CHECK_FALSE(read_file(path, 4));
    CHECK(link_file(path, root + "/a/two") == 0);
    CHECK(rename_file(path, root + "/a/zero") == 0);
    CHECK(*list_directory(root + "/a") == std::vector<std::string>{"b", "two", "zero"});
    CHECK_FALSE(file_exists(path));
    CHECK(file_system_space(root)->bytes_total > 0);
    CHECK(sync_directory(root + "/nowhere") == -ENOENT);
    CHECK(make_directory(root + "/a/two") == -EEXIST);
    {
        auto lock = lock_file(root + "/lock");
        REQUIRE(lock);
        const auto second = lock_file(root + "/lock");
        REQUIRE_FALSE(second);
        CHECK(second.error().text.find("locked") != std::string::npos);
    }
    CHECK(lock_file(root + "/lock"));
    for (const char* name : {"/a/two", "/a/zero", "/lock"}) CHECK(remove_file(root + name) == 0);
    for (const char* name : {"/a/b", "/a", ""}) CHECK(::rmdir((root + name).c_str()) == 0);
}

TEST_CASE("At least one CPU is usable, and no more than there are", "[threads]") {
    CHECK(usable_cpus() >= 1);
    CHECK(usable_cpus() <= static_cast<unsigned>(::sysconf(_SC_NPROCESSORS_ONLN)));
}
