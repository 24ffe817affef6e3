#include "ring/sockets.hpp"

#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "ring/kernel/socket_address.hpp"

namespace postern {

void close_fd(int fd) { ::close(fd); }      // Linux has closed it even when it reports EINTR: never again

}  // namespace postern

namespace postern::ring {

namespace {

constexpr int bind_attempts = 20;
constexpr auto bind_pause = std::chrono::milliseconds(50);

void set_option(int fd, int level, int name, int value) { ::setsockopt(fd, level, name, &value, sizeof value); }

int kernel_family(SocketAddress::Family family) {
    switch (family) {
        case SocketAddress::Family::ipv4: return AF_INET;
        case SocketAddress::Family::ipv6: return AF_INET6;
        case SocketAddress::Family::unix_path: return AF_UNIX;
        case SocketAddress::Family::none: break;
    }
    return AF_UNSPEC;
}

// Blocking mode throughout: a non-blocking descriptor makes the ring answer EAGAIN instead of waiting.
UniqueFd stream_socket(SocketAddress::Family family) {
    UniqueFd fd(::socket(kernel_family(family), SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (fd && family != SocketAddress::Family::unix_path) set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
    return fd;
}

bool is_any_ipv6(const SocketAddress& address) {
    return address.family == SocketAddress::Family::ipv6 && address.ip == std::array<uint8_t, 16>{};
}

int bind_patiently(int fd, const sockaddr_storage& address, socklen_t length) {
    for (int attempt = 1;; ++attempt) {
        if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), length) == 0) return 0;
        if (errno != EADDRINUSE || attempt == bind_attempts) return -errno;
        std::this_thread::sleep_for(bind_pause);
    }
}

template <int (*ask)(int, sockaddr*, socklen_t*)>
SocketAddress address_of(int fd) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    if (ask(fd, reinterpret_cast<sockaddr*>(&address), &length) < 0) return {};
    return from_kernel(address, length);
}

int ask_peer(int fd, sockaddr* address, socklen_t* length) { return ::getpeername(fd, address, length); }
int ask_local(int fd, sockaddr* address, socklen_t* length) { return ::getsockname(fd, address, length); }

}  // namespace

Result<UniqueFd> listen_on(const SocketAddress& address, int backlog) {
    const std::string what = "cannot listen on " + address.text();
    UniqueFd fd = stream_socket(address.family);
    if (!fd && errno == EAFNOSUPPORT && is_any_ipv6(address)) {     // a host without IPv6: "*" still means all there is
        SocketAddress any_ipv4;
        any_ipv4.family = SocketAddress::Family::ipv4;
        any_ipv4.port = address.port;
        return listen_on(any_ipv4, backlog);
    }
    if (!fd) return fail(os_error(errno, what));
    if (address.family != SocketAddress::Family::unix_path) {
        set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
        set_option(fd.get(), SOL_SOCKET, SO_REUSEPORT, 1);
    }
    if (is_any_ipv6(address)) set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);

    sockaddr_storage kernel_address;
    const socklen_t length = to_kernel(address, kernel_address);
    if (length == 0) return fail(os_error(ENAMETOOLONG, what));
    if (const int status = bind_patiently(fd.get(), kernel_address, length); status < 0)
        return fail(os_error(-status, what));
    if (::listen(fd.get(), backlog) < 0) return fail(os_error(errno, what));
    return fd;
}

Result<uint16_t> bound_port(int fd) {
    const SocketAddress address = local_address(fd);
    if (address.family == SocketAddress::Family::none) return fail(os_error(errno, "cannot ask for a socket's port"));
    return address.port;
}

Result<UniqueFd> connecting_socket(SocketAddress::Family family) {
    UniqueFd fd = stream_socket(family);
    if (!fd) return fail(os_error(errno, "cannot make a socket"));
    return fd;
}

SocketAddress peer_address(int fd) { return address_of<ask_peer>(fd); }
SocketAddress local_address(int fd) { return address_of<ask_local>(fd); }

int send_now(int fd, std::string_view octets) {
    for (;;) {
        const ssize_t count = ::send(fd, octets.data(), octets.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (count >= 0) return static_cast<int>(count);
        if (errno != EINTR) return -errno;
    }
}

int receive_now(int fd, char* into, size_t bytes) {
    for (;;) {
        const ssize_t count = ::recv(fd, into, bytes, MSG_DONTWAIT);
        if (count >= 0) return static_cast<int>(count);
        if (errno != EINTR) return -errno;
    }
}

void quick_ack(int fd) { set_option(fd, IPPROTO_TCP, TCP_QUICKACK, 1); }
void shutdown_write(int fd) { ::shutdown(fd, SHUT_WR); }
void shutdown_both(int fd) { ::shutdown(fd, SHUT_RDWR); }

void reset_on_close(int fd) {
    const linger at_once{1, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

int accept_now(int fd) {
    // The listener is about to be closed, so it may turn non-blocking: a connection may vanish between any two calls.
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
    for (;;) {
        const int connection = ::accept4(fd, nullptr, nullptr, SOCK_CLOEXEC);
        if (connection >= 0) return connection;
        if (errno != EINTR && errno != ECONNABORTED) return -errno;
    }
}

}  // namespace postern::ring
