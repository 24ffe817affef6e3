// A next hop by SMTP or LMTP: name look-up, connections and their number, back-off while it is down.
//
// State for a dead next hop is one back-off and one probing connection, whatever waits for it: waiting messages are not
// touched.  Threads: the owning shard.
#pragma once

#include <memory>
#include <vector>

#include "gateway/delivery/route.hpp"
#include "proto/client_session.hpp"
#include "ring/base/intrusive_list.hpp"
#include "ring/resolve.hpp"
#include "ring/stream.hpp"

namespace postern::gateway {

class SmtpConnection;

class SmtpRoute final : public Route, private ring::Job {
public:
    SmtpRoute(DeliveryContext& context, size_t index);
    ~SmtpRoute() override;
    void stop() override;
    void abort() override;
    bool busy() const override;
    bool closed() const override { return connections_.empty(); }

private:
    friend class SmtpConnection;
    void kick() override;
    void on_due() override { kick(); }
    void run() override;                    // the name look-up, on a worker
    void done() override;

    bool resolve();                         // true when addresses_ can be used
    void open_connection();
    void reached();                         // the next hop serves: the back-off ends
    void unreachable(std::string_view why);
    // Of a connection, called by it:
    void connection_ready(SmtpConnection& connection);
    void connection_failed(SmtpConnection& connection, std::string_view why);       // never became ready
    void connection_closed(SmtpConnection& connection);                             // destroys it
    std::optional<Item> next_item() { return stopping_ ? std::nullopt : next(); }
    void give_back(const Item& item) { put_back(item); }

    proto::ClientSettings client_settings_;
    ring::StreamLimits stream_limits_;
    std::vector<ring::SocketAddress> addresses_;
    size_t next_address_ = 0;
    size_t addresses_failed_ = 0;           // in a row, of this round
    Monotonic resolved_;
    bool has_name_ = false;
    bool resolving_ = false;
    ring::Resolution resolution_;           // written by the worker while resolving_
    unsigned failures_ = 0;                 // rounds in a row
    Monotonic down_until_;                  // no connection is opened before
    size_t opening_ = 0;                    // connections that are not ready yet
    size_t connection_count_ = 0;
    IntrusiveList<SmtpConnection> idle_;
    std::vector<std::unique_ptr<SmtpConnection>> connections_;
};

}  // namespace postern::gateway
