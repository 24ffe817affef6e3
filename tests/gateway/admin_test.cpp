#include "gateway/admin.hpp"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <thread>
#include <vector>

#include "gateway/health.hpp"

using namespace postern;
using namespace postern::gateway;

namespace {

// One HTTP exchange over a plain socket: all that comes until the server closes.
std::string talk_to(uint16_t port, const std::string& request) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
    REQUIRE(send(fd, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size()));
    std::string text;
    char chunk[4096];
    for (ssize_t n; (n = recv(fd, chunk, sizeof chunk, 0)) > 0;) text.append(chunk, static_cast<size_t>(n));
    close(fd);
    return text;
}

struct Answer {
    std::string head, body;
};
Answer ask(uint16_t port, const std::string& method, const std::string& path) {
    const std::string text = talk_to(port, method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    const size_t end = text.find("\r\n\r\n");
    REQUIRE(end != text.npos);
    return {text.substr(0, end + 2), text.substr(end + 4)};
}

// A gateway of which only the state is there.
struct Fixture {
    std::atomic<bool> live{true}, ready{true}, started{true};
    std::string metrics = "postern_ready 1\n";
    std::unique_ptr<AdminServer> server = AdminServer::start("127.0.0.1:0", state()).value();

    AdminState state() {
        return {.metrics = [this] { return metrics; },
                .live = [this] { return live.load(); },
                .ready = [this] { return ready.load(); },
                .started = [this] { return started.load(); },
                .reason = [] { return std::string("the spool is full"); }};
    }
    std::string address() const { return "127.0.0.1:" + std::to_string(server->port()); }
};

}  // namespace

TEST_CASE("The metrics are served as Prometheus wants them", "[admin]") {
    const Fixture gateway;
    const Answer got = ask(gateway.server->port(), "GET", "/metrics");
    CHECK(got.head.starts_with("HTTP/1.1 200 OK\r\n"));
    CHECK(got.head.find("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n") != got.head.npos);
    CHECK(got.head.find("Content-Length: 16\r\n") != got.head.npos);
    CHECK(got.body == "postern_ready 1\n");
}

TEST_CASE("Metrics of more than a socket buffer arrive whole", "[admin]") {
    Fixture gateway;
    gateway.metrics.assign(8'000'000, 'x');
    CHECK(ask(gateway.server->port(), "GET", "/metrics").body == gateway.metrics);
}

TEST_CASE("Health is 200 or 503 with the reason", "[admin]") {
    Fixture gateway;
    struct { const char* path; std::atomic<bool>& flag; } const table[] = {
        {"/livez", gateway.live}, {"/readyz", gateway.ready}, {"/startupz", gateway.started}};
    for (const auto& [path, flag] : table) {
        INFO(path);
        const Answer good = ask(gateway.server->port(), "GET", path);
        CHECK(good.head.starts_with("HTTP/1.1 200 OK\r\n"));
        CHECK(good.body == "ok\n");
        CHECK(http_status(gateway.address(), path, seconds(5)).value() == 200);
        flag = false;
        const Answer bad = ask(gateway.server->port(), "GET", path);
        CHECK(bad.head.starts_with("HTTP/1.1 503 Service Unavailable\r\n"));
        CHECK(bad.body == "the spool is full\n");
        CHECK(http_status(gateway.address(), path, seconds(5)).value() == 503);
        flag = true;
    }
}

TEST_CASE("HEAD is answered like GET, without the body", "[admin]") {
    const Fixture gateway;
    const Answer got = ask(gateway.server->port(), "HEAD", "/metrics");
    CHECK(got.head.starts_with("HTTP/1.1 200 OK\r\n"));
    CHECK(got.head.find("Content-Length: 16\r\n") != got.head.npos);
    CHECK(got.body.empty());
}

TEST_CASE("Other paths are 404 and other methods 405", "[admin]") {
    const Fixture gateway;
    for (const char* path : {"/", "/metrics/", "/metricsx", "/../etc/passwd", "/livez/x"}) {
        INFO(path);
        CHECK(ask(gateway.server->port(), "GET", path).head.starts_with("HTTP/1.1 404 "));
    }
    for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS"}) {
        INFO(method);
        CHECK(ask(gateway.server->port(), method, "/metrics").head.starts_with("HTTP/1.1 405 "));
    }
    CHECK(ask(gateway.server->port(), "POST", "/metrics").head.find("Allow: GET, HEAD\r\n") != std::string::npos);
    CHECK(ask(gateway.server->port(), "GET", "/metrics?name=x").head.starts_with("HTTP/1.1 200 "));
}

TEST_CASE("Many ask at once and all are answered", "[admin]") {
    const Fixture gateway;
    std::atomic<int> good{0};
    std::vector<std::thread> clients;
    for (int i = 0; i < 8; ++i)
        clients.emplace_back([&] {
            for (int j = 0; j < 20; ++j)
                if (http_status(gateway.address(), "/metrics", seconds(10)).value_or(0) == 200) ++good;
        });
    for (std::thread& client : clients) client.join();
    CHECK(good == 160);
}

TEST_CASE("A port that is taken is an error with cause and remedy", "[admin]") {
    Fixture gateway;
    const auto second = AdminServer::start(gateway.address(), gateway.state());
    REQUIRE_FALSE(second);
    CHECK(second.error().code == EADDRINUSE);
    CHECK(second.error().text == "cannot serve HTTP on " + gateway.address() +
                                     ": Address already in use; stop what listens there, or set admin.address to another port");
}

TEST_CASE("An address that is not ours is an error", "[admin]") {
    Fixture gateway;
    const auto server = AdminServer::start("192.0.2.1:0", gateway.state());
    REQUIRE_FALSE(server);
    CHECK(server.error().code == EADDRNOTAVAIL);
    CHECK_FALSE(AdminServer::start("localhost.invalid", gateway.state()));
}

TEST_CASE("A server that was stopped gives its port back", "[admin]") {
    Fixture gateway;
    const std::string address = gateway.address();
    gateway.server.reset();
    CHECK_FALSE(http_status(address, "/livez", seconds(1)));
    CHECK(AdminServer::start(address, gateway.state()));
}

TEST_CASE("Asking where nobody listens fails and says so", "[admin]") {
    Fixture gateway;
    const std::string address = gateway.address();
    gateway.server.reset();
    const auto status = http_status(address, "/readyz", seconds(1));
    REQUIRE_FALSE(status);
    CHECK(status.error().text.starts_with("no answer from http://" + address + "/readyz: "));
    CHECK_FALSE(http_status("127.0.0.1", "/readyz", seconds(1)));
    CHECK_FALSE(http_status("127.0.0.1:http", "/readyz", seconds(1)));
}

TEST_CASE("Of every address, this host is asked", "[admin]") {
    Fixture gateway;
    auto server = AdminServer::start("*:0", gateway.state());
    REQUIRE(server);
    CHECK(http_status("*:" + std::to_string((*server)->port()), "/livez", seconds(5)).value() == 200);
}
