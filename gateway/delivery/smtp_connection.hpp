// One connection to a next hop: drives ClientSession over a stream, and feeds it messages from the spool.
//
// Threads: the owning shard.  Owned by its route, which destroys it in connection_closed().
#pragma once

#include <string>
#include <vector>

#include "gateway/delivery/smtp_route.hpp"

namespace postern::gateway {

class SmtpConnection final : public ListNode<>,
                             private ring::StreamHandler,
                             private proto::ClientEvents,
                             private storage::MessageReaderHandler {
public:
    SmtpConnection(SmtpRoute& route, const ring::SocketAddress& address);

    void deliver(const Item& item);         // only when idle()
    bool idle() const { return was_ready_ && !has_item_ && !leaving_; }
    bool busy() const { return has_item_; }
    void leave();                           // QUIT, when idle
    const ring::SocketAddress& address() const { return address_; }
    void abort();                           // at once; a message without an answer stays pending, as if not tried

private:
    // ring::StreamHandler
    size_t on_received(std::string_view octets) override;
    void on_connected() override;
    void on_end_of_input() override;
    void on_sent() override;
    void on_deadline() override;
    void on_closed(int error) override;
    // proto::ClientEvents
    void on_ready() override;
    void on_body_wanted() override { body_wanted_ = true; }
    void on_recipient_done(size_t recipient, proto::Outcome outcome, const proto::RemoteReply& reply) override;
    void on_message_done() override;
    void on_session_over(bool refused, const proto::RemoteReply& reply) override;
    // storage::MessageReaderHandler
    void on_readable() override;

    using ReadStatus = storage::MessageReader::Status;
    void opened(ReadStatus status);
    void start_transaction();
    void pump();
    void flush();                           // out_ to the stream, deadline moved
    void lose(std::string_view why);        // gives the connection up, with outcomes for the message on it
    void drop_item();
    bool closed_while_idle() const;         // all that came after this message was begun is that the connection is over

    static constexpr size_t unsent_high = 64 * 1024;

    SmtpRoute& route_;
    ring::SocketAddress address_;
    ring::Stream stream_;
    proto::ClientSession client_;
    storage::MessageReader reader_;
    std::string out_;

    Item item_;
    proto::Envelope envelope_;
    std::vector<uint32_t> indices_;         // of the recipients of this attempt, in the envelope
    std::vector<std::string_view> recipients_;
    AttemptResults results_;
    unsigned messages_ = 0;                 // sent on this connection
    bool connected_ = false;
    bool was_ready_ = false;
    bool has_item_ = false;
    bool body_wanted_ = false;
    bool heard_ = false;                    // a reply came since this message was begun, other than a last 421
    bool reading_ = false;                  // the reader owes us on_readable()
    bool leaving_ = false;                  // QUIT was sent, or the session is over
    bool over_ = false;
    bool aborting_ = false;
    bool service_closed_ = false;           // by a 421
    std::string failure_;                   // why it never became ready
};

}  // namespace postern::gateway
