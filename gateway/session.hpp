// One client's connection: drives ServerSession over a stream and the spool.
//
// Lives until its connection is closed and no commit is in flight: a message that was being committed when the client went
// away is accepted and delivered all the same (RFC 1047: the client may send it again).
//
// Threads: the owning shard.  Size matters: ten thousand idle ones are normal.
#pragma once

#include <string_view>

#include "gateway/log.hpp"
#include "proto/server_session.hpp"
#include "ring/stream.hpp"
#include "storage/spool.hpp"

namespace postern::gateway {

class Shard;

class Session final : private ring::StreamHandler,
                      private proto::ServerEvents,
                      private storage::CommitWaiter,
                      private storage::Spool::Relief {
public:
    Session(Shard& shard, uint32_t slot, UniqueFd connection);

    void start();               // greets
    void shut_down();           // drain: 421 between commands, or after the data in progress
    void abort();               // at once
    bool in_data() const { return machine_.in_data(); }

private:
    // ring::StreamHandler
    size_t on_received(std::string_view octets) override;
    void on_end_of_input() override;
    void on_sent() override {}
    void on_deadline() override;
    void on_closed(int error) override;
    // proto::ServerEvents
    void on_data(std::string_view slice) override;
    proto::Verdict on_mail(const proto::Envelope& envelope) override;
    proto::Verdict on_recipient(const proto::Mailbox& mailbox, std::string_view canonical) override;
    proto::Verdict on_data_start(const proto::Envelope& envelope) override;
    proto::Verdict on_data_end(const proto::Envelope& envelope, const proto::DataFacts& facts) override;
    void on_abandoned() override;
    void on_command(proto::Verb verb) override;
    void on_reply(proto::Stage stage, uint16_t code) override;
    void on_refused(proto::Stage stage, const proto::Reply& reply, std::string_view about) override;
    // storage
    void on_committed(Result<storage::MessageIndex, storage::SpoolError> outcome) override;
    void on_relieved() override;

    bool append(std::string_view slice);
    void write_trace();
    proto::Verdict room_for(uint64_t bytes);
    void after_feed(std::string& out);
    void finish_if_done();
    LogLine line(Level level, std::string_view event) const;

    Shard& shard_;
    uint32_t slot_;
    ring::Stream stream_;
    proto::ServerSession machine_;
    storage::MessageWriter writer_;
    ring::SocketAddress client_;
    Monotonic since_;
    storage::QueueId id_;
    uint32_t committing_generation_ = 0;
    uint8_t store_error_ = 0;               // 1 + SpoolError of the message being received
    bool may_relay_ = false;
    bool trace_written_ = false;
    bool committing_ = false;
    bool closed_ = false;
    bool input_ended_ = false;
};

}  // namespace postern::gateway
