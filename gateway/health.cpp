#include "gateway/health.hpp"

#include <civetweb.h>

#include <charconv>
#include <memory>

namespace postern::gateway {
namespace {

struct Library {
    Library() { mg_init_library(MG_FEATURES_DEFAULT); }
    ~Library() { mg_exit_library(); }
};
struct CloseConnection {
    void operator()(mg_connection* connection) const { mg_close_connection(connection); }
};

}  // namespace

Result<int> http_status(const std::string& address, const std::string& path, Duration timeout) {
    const auto failed = [&](const char* why) { return fail(Error{0, "no answer from http://" + address + path + ": " + why}); };
    const size_t colon = address.rfind(':');
    if (colon == address.npos) return failed("the address has no port");
    std::string host = address.substr(0, colon);
    if (host == "*" || host == "0.0.0.0") host = "127.0.0.1";
    uint16_t port = 0;
    const char* const end = address.data() + address.size();
    if (const auto parsed = std::from_chars(address.data() + colon + 1, end, port); parsed.ec != std::errc() || parsed.ptr != end)
        return failed("the address has no port");

    const Library library;
    char why[256] = "";
    const std::unique_ptr<mg_connection, CloseConnection> connection(mg_connect_client(host.c_str(), port, 0, why, sizeof why));
    if (!connection) return failed(why);
    mg_printf(connection.get(), "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path.c_str(), address.c_str());
    if (mg_get_response(connection.get(), why, sizeof why, static_cast<int>(timeout.ns / 1'000'000)) < 0) return failed(why);
    return mg_get_response_info(connection.get())->status_code;
}

}  // namespace postern::gateway
