// SocketAddress to and from the kernel's form.
#pragma once

#include <sys/socket.h>

#include "ring/sockets.hpp"

namespace postern::ring {

// Returns the length, or 0 when the address has no family or its path is too long.
socklen_t to_kernel(const SocketAddress& address, sockaddr_storage& into);
SocketAddress from_kernel(const sockaddr_storage& from, socklen_t length);

}  // namespace postern::ring
