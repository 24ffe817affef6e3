// c-ares, driven to its end by poll(2).  A channel of its own for each call: it reads resolv.conf afresh, so that a change
// there needs no restart, and threads share nothing.
#include "ring/resolve.hpp"

#include <algorithm>
#include <ares.h>
#include <array>
#include <cstring>
#include <poll.h>
#include <sys/time.h>

#include "ring/clock.hpp"
#include "ring/kernel/socket_address.hpp"

namespace postern::ring {

namespace {

constexpr Duration resolve_wait_max = seconds(10);
constexpr int query_wait_ms = 2000;     // until the next try or the next server
constexpr int query_tries = 3;

struct Answer {
    bool complete = false;
    int status = ARES_SUCCESS;
    uint16_t port = 0;
    std::vector<SocketAddress> addresses;
};

void on_answer(void* argument, int status, int, ares_addrinfo* info) {
    Answer& answer = *static_cast<Answer*>(argument);
    answer.complete = true;
    answer.status = status;
    if (info == nullptr) return;
    for (const ares_addrinfo_node* node = info->nodes; node != nullptr; node = node->ai_next) {
        sockaddr_storage storage{};
        const auto length = std::min<size_t>(node->ai_addrlen, sizeof storage);
        std::memcpy(&storage, node->ai_addr, length);
        SocketAddress address = from_kernel(storage, static_cast<socklen_t>(length));
        if (address.family == SocketAddress::Family::none) continue;
        address.port = answer.port;
        if (std::find(answer.addresses.begin(), answer.addresses.end(), address) == answer.addresses.end()) {
            answer.addresses.push_back(std::move(address));     // /etc/hosts may name one twice
        }
    }
    ares_freeaddrinfo(info);
}

class Channel {
public:
    Channel() {
        static const int library = ares_library_init(ARES_LIB_INIT_ALL);
        ares_options options{};
        options.timeout = query_wait_ms;
        options.tries = query_tries;
        status_ = library != ARES_SUCCESS ? library
                                          : ares_init_options(&channel_, &options, ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES);
    }
    Channel(const Channel&) = delete;
    ~Channel() {
        if (status_ == ARES_SUCCESS) ares_destroy(channel_);
    }
    int status() const { return status_; }
    ares_channel get() const { return channel_; }

private:
    ares_channel channel_ = nullptr;
    int status_ = ARES_SUCCESS;
};

// Waits until a socket of the channel has something to do, c-ares has a time-out to handle, or `left` has passed.
void process_once(ares_channel channel, Duration left) {
    std::array<ares_socket_t, ARES_GETSOCK_MAXNUM> sockets{};
    const int wanted = ares_getsock(channel, sockets.data(), static_cast<int>(sockets.size()));
    std::array<pollfd, ARES_GETSOCK_MAXNUM> polled{};
    nfds_t count = 0;
    for (int i = 0; i < ARES_GETSOCK_MAXNUM; ++i) {
        const bool readable = ARES_GETSOCK_READABLE(wanted, i);
        const bool writable = ARES_GETSOCK_WRITABLE(wanted, i);
        if (!readable && !writable) continue;
        const int events = (readable ? POLLIN : 0) | (writable ? POLLOUT : 0);
        polled[count++] = {sockets[static_cast<size_t>(i)], static_cast<short>(events), 0};
    }
    timeval limit{static_cast<time_t>(left.ns / 1'000'000'000), static_cast<suseconds_t>(left.ns / 1000 % 1'000'000)};
    timeval storage{};
    const timeval* wait = ares_timeout(channel, &limit, &storage);
    poll(polled.data(), count, static_cast<int>(wait->tv_sec * 1000 + wait->tv_usec / 1000 + 1));
    for (nfds_t i = 0; i < count; ++i) {
        const bool failed = (polled[i].revents & (POLLERR | POLLHUP | POLLNVAL)) != 0;
        ares_process_fd(channel, failed || (polled[i].revents & POLLIN) ? polled[i].fd : ARES_SOCKET_BAD,
                        polled[i].revents & POLLOUT ? polled[i].fd : ARES_SOCKET_BAD);
    }
    ares_process_fd(channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);     // time-outs
}

Resolution failed(Resolution::Status status, const std::string& name, const char* why) {
    return {status, {}, "cannot resolve " + name + ": " + why};
}

Resolution::Status meaning_of(int status) {
    switch (status) {
        case ARES_SUCCESS: return Resolution::Status::found;
        case ARES_ENODATA:
        case ARES_ENOTFOUND:
        case ARES_ENONAME:
        case ARES_EBADNAME: return Resolution::Status::not_found;
        default: return Resolution::Status::temporary;
    }
}

}  // namespace

Resolution resolve_host(const std::string& name, uint16_t port) {
    Answer answer;      // outlives the channel, whose end may still call on_answer()
    answer.port = port;
    const Channel channel;
    if (channel.status() != ARES_SUCCESS) {
        return failed(Resolution::Status::temporary, name, ares_strerror(channel.status()));
    }
    ares_addrinfo_hints hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    const Monotonic deadline = monotonic_now() + resolve_wait_max;
    ares_getaddrinfo(channel.get(), name.c_str(), nullptr, &hints, on_answer, &answer);
    while (!answer.complete) {
        const Duration left = deadline - monotonic_now();
        if (left <= Duration{}) return failed(Resolution::Status::temporary, name, "no answer within 10 seconds");
        process_once(channel.get(), left);
    }
    const Resolution::Status status = meaning_of(answer.status);
    if (status != Resolution::Status::found) return failed(status, name, ares_strerror(answer.status));
    if (answer.addresses.empty()) return failed(Resolution::Status::not_found, name, ares_strerror(ARES_ENODATA));
    return {status, std::move(answer.addresses), {}};
}

}  // namespace postern::ring
