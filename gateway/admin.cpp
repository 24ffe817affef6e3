#include "gateway/admin.hpp"

#include <civetweb.h>

#include <atomic>
#include <cerrno>
#include <string_view>
#include <utility>

#include "ring/threads.hpp"

namespace postern::gateway {
namespace {

struct Answer {
    int status = 200;
    const char* reason = "OK";
    const char* type = "text/plain; charset=utf-8";
    std::string body;
};

Answer health(bool good, const AdminState& state) {
    if (good) return {.body = "ok\n"};
    return {.status = 503, .reason = "Service Unavailable", .body = state.reason() + "\n"};
}

Answer answer(std::string_view method, std::string_view path, const AdminState& state) {
    if (method != "GET" && method != "HEAD")
        return {.status = 405, .reason = "Method Not Allowed", .body = "only GET and HEAD\n"};
    if (path == "/metrics") return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = state.metrics()};
    if (path == "/livez") return health(state.live(), state);
    if (path == "/readyz") return health(state.ready(), state);
    if (path == "/startupz") return health(state.started(), state);
    return {.status = 404, .reason = "Not Found", .body = "try /metrics, /livez, /readyz or /startupz\n"};
}

void send(mg_connection* connection, const Answer& answer, bool with_body) {
    std::string text = "HTTP/1.1 " + std::to_string(answer.status) + " " + answer.reason + "\r\nContent-Type: " + answer.type +
                       "\r\nContent-Length: " + std::to_string(answer.body.size()) + "\r\nCache-Control: no-store\r\n";
    if (answer.status == 405) text += "Allow: GET, HEAD\r\n";
    text += "Connection: close\r\n\r\n";
    if (with_body) text += answer.body;
    mg_write(connection, text.data(), text.size());         // a client that has gone is its own trouble
}

// CivetWeb takes "PORT" for every IPv4 address.
std::string listening_port(const std::string& address) {
    return address.starts_with("*:") ? address.substr(2) : address;
}

std::string reachable_host(const std::string& address) {
    const std::string host = address.substr(0, address.rfind(':'));
    return host == "*" || host == "0.0.0.0" ? "127.0.0.1" : host;
}

}  // namespace

struct AdminServer::Impl {
    AdminState state;
    mg_context* context = nullptr;
    std::string host;                   // where a client of this machine reaches us
    uint16_t port = 0;
    std::string complaint;              // the first that CivetWeb makes while it starts
    int complaint_errno = 0;

    Impl() { mg_init_library(MG_FEATURES_DEFAULT); }
    ~Impl() {
        if (context) stop();
        mg_exit_library();
    }

    // CivetWeb 1.15 looks at its stop flag only when something happens on the port, or every two seconds: something happens.
    void stop() {
        std::atomic<bool> stopped{false};
        const ring::Thread stopper("admin-stop", [&] {
            mg_stop(context);
            stopped = true;
        });
        char why[64];
        while (!stopped)
            if (mg_connection* nudge = mg_connect_client(host.c_str(), port, 0, why, sizeof why)) mg_close_connection(nudge);
    }

    static int on_request(mg_connection* connection) {
        const mg_request_info* request = mg_get_request_info(connection);
        const auto& self = *static_cast<const Impl*>(request->user_data);
        const std::string_view method = request->request_method;
        const Answer given = answer(method, request->local_uri ? request->local_uri : "", self.state);
        send(connection, given, method != "HEAD");
        return given.status;            // not 0: answered
    }

    // What CivetWeb has to say is about single connections, but for the start: there errno is still that of bind().
    static int on_complaint(const mg_connection* connection, const char* message) {
        const int code = errno;
        auto& self = *static_cast<Impl*>(mg_get_user_data(mg_get_context(connection)));
        if (!self.context && self.complaint.empty()) {
            self.complaint = message;
            if (self.complaint.starts_with("cannot bind") || self.complaint.starts_with("cannot listen")) self.complaint_errno = code;
        }
        return 1;                       // handled: nothing is written to a file
    }

    Error start_error(const std::string& address) const {
        const std::string what = "cannot serve HTTP on " + address;
        if (complaint_errno == EADDRINUSE)
            return Error{EADDRINUSE, os_error(EADDRINUSE, what).text + "; stop what listens there, or set admin.address to another port"};
        if (complaint_errno) return os_error(complaint_errno, what);
        return Error{0, what + ": " + complaint};
    }
};

AdminServer::AdminServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AdminServer::~AdminServer() = default;

Result<std::unique_ptr<AdminServer>> AdminServer::start(const std::string& address, AdminState state) {
    auto impl = std::make_unique<Impl>();
    impl->state = std::move(state);
    mg_callbacks callbacks{};
    callbacks.begin_request = Impl::on_request;
    callbacks.log_message = Impl::on_complaint;
    const std::string port = listening_port(address);
    const char* options[] = {"listening_ports", port.c_str(), "num_threads", "2", "connection_queue", "8", "max_request_size", "4096",
                             "request_timeout_ms", "5000", "enable_keep_alive", "no", "enable_directory_listing", "no", nullptr};
    mg_context* context = mg_start(&callbacks, impl.get(), options);
    if (!context) return fail(impl->start_error(address));
    impl->context = context;
    impl->host = reachable_host(address);
    mg_server_port bound{};
    if (mg_get_server_ports(context, 1, &bound) == 1) impl->port = static_cast<uint16_t>(bound.port);
    return std::unique_ptr<AdminServer>(new AdminServer(std::move(impl)));
}

uint16_t AdminServer::port() const { return impl_->port; }

}  // namespace postern::gateway
