// ServerSession: DATA, BDAT (RFC 3030), and the end of a message.
//
// A message that is certain to be refused is abandoned at once and read on to its real end, by the same framer (P3);
// the one reply comes there.
#include <algorithm>
#include <cstdio>

#include "proto/server_commands.hpp"

namespace postern::proto {

namespace {

// Refused data is read and dropped up to twice the message limit, and this much more so that a small limit does not
// hang up on a message of ordinary size.
constexpr uint64_t discard_bytes_extra = 1u << 20;

// A chunk is to carry this much on average once there are many: the cost of a command is paid for in octets.
constexpr uint64_t chunks_free = 1000;
constexpr uint64_t chunk_bytes_wanted = 64;

constexpr Reply message_too_big{552, "5.3.4", "Message too big"};

uint64_t saturating_add(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

}  // namespace

// Hands slices on while the message has a chance, and stops at the octet where it is too big.
class ServerSession::MessageSink final : public DataSink {
public:
    explicit MessageSink(ServerSession& session) : session_(session) {}
    void on_data(std::string_view slice) override {
        if (!session_.transaction_ || !session_.transaction_->storing) return;
        if (session_.framer_.facts().bytes > session_.settings_.message_bytes_max) {
            session_.abandon();
            return;
        }
        session_.events_.on_data(slice);
    }

private:
    ServerSession& session_;
};

Reply check_data(const CheckContext& context, CommandArguments& arguments) {
    if (!arguments.text.empty()) return {501, "5.5.4", "DATA takes no argument"};
    if (context.transaction->envelope.body == BodyType::binary_mime)
        return {503, "5.5.1", "BODY=BINARYMIME goes with BDAT"};                    // RFC 3030 §3
    return {};
}

// Only what makes the chunk's length unknown is refused here: any other refusal must still swallow its octets.
Reply check_bdat(const CheckContext& context, CommandArguments& arguments) {
    if (!context.settings.chunking) return {502, "5.5.1", "BDAT is not offered here"};
    return parse_chunk(arguments.text, arguments.chunk);
}

void ServerSession::proceed_data(const Arguments&, std::string& out) {
    settle(Question::data_start, events_.on_data_start(transaction_->envelope), out);
}

// After a refusal the transaction stays: the client may try again, or RSET.
void ServerSession::answer_data_start(const Reply& reply, std::string& out) {
    if (reply.code >= 400) {
        count_error(Stage::data, reply, transaction_->envelope.sender(), out);
        return;
    }
    transaction_->storing = true;
    data_bytes_ = 0;
    framer_.begin_data(settings_.bare_newline);
    reading_ = Reading::data;
    say(Stage::data, {354, {}, "End data with <CR><LF>.<CR><LF>"}, out);
}

size_t ServerSession::feed_data(std::string_view octets, std::string& out) {
    const uint64_t data_bytes_max = saturating_add(settings_.message_bytes_max, discard_bytes_max());
    MessageSink sink(*this);
    const size_t taken =
        framer_.feed(octets.substr(0, std::min<uint64_t>(octets.size(), data_bytes_max - data_bytes_)), sink);
    data_bytes_ += taken;
    if (judge_message().code != 0) abandon();
    if (framer_.ended()) {
        end_message(out);
    } else if (data_bytes_ >= data_bytes_max) {
        say_last(Stage::end_of_data, message_too_big, out);
    }
    return taken;
}

void ServerSession::proceed_bdat(const Arguments& arguments, std::string& out) {
    chunk_bytes_ = arguments.chunk.bytes;
    chunk_last_ = arguments.chunk.last;
    chunk_refusal_ = judge_chunk();
    if (!transaction_ || !transaction_->open) return start_chunk(out);

    Transaction& transaction = *transaction_;
    const uint64_t moved = saturating_add(framer_.facts().bytes, discarded_bytes_);
    if (++transaction.chunks > chunks_free && transaction.chunks * chunk_bytes_wanted > moved)
        return say_last(Stage::data, {421, "4.7.0", "Too many tiny chunks"}, out);
    const bool first = !transaction.chunking;
    transaction.chunking = true;
    if (chunk_refusal_.code == 0 && first)
        return settle(Question::chunk_start, events_.on_data_start(transaction.envelope), out);
    start_chunk(out);
}

// What is known to be wrong before the chunk's octets come.
Reply ServerSession::judge_chunk() const {
    if (!transaction_ || !transaction_->open) return {503, "5.5.1", "MAIL first"};
    if (transaction_->failed) return {551, "5.0.0", "Discarded after an earlier error"};
    if (transaction_->accepted == 0)
        return transaction_->refused ? Reply{554, "5.5.1", "No valid recipients"} : Reply{503, "5.5.1", "RCPT first"};
    const uint64_t before = transaction_->chunking ? framer_.facts().bytes : 0;
    if (saturating_add(before, chunk_bytes_) > settings_.message_bytes_max) return message_too_big;
    return {};
}

void ServerSession::answer_chunk_start(const Reply& reply, std::string& out) {
    if (reply.code >= 400) {
        chunk_refusal_ = transaction_->keep(reply);
    } else {
        transaction_->storing = true;
        // Octets of BINARYMIME are nobody's lines: they pass unchanged.
        const bool binary = transaction_->envelope.body == BodyType::binary_mime;
        framer_.begin_message(binary ? BareNewline::reject : settings_.bare_newline);
    }
    start_chunk(out);
}

void ServerSession::start_chunk(std::string& out) {
    if (chunk_refusal_.code != 0) {
        if (transaction_ && transaction_->open) {
            transaction_->failed = true;
            abandon();
        }
        // What could never be read to its end is answered at once.
        if (chunk_bytes_ > discard_bytes_max() - discarded_bytes_) {
            const bool too_big = chunk_refusal_.code == message_too_big.code;
            return say_last(Stage::data, too_big ? message_too_big : Reply{421, "4.7.0", "Too much refused data"}, out);
        }
        discarded_bytes_ += chunk_bytes_;
        framer_.begin_message(BareNewline::reject);
    }
    framer_.begin_chunk(chunk_bytes_);
    reading_ = Reading::chunk;
    if (chunk_bytes_ == 0) end_chunk(out);
}

size_t ServerSession::feed_chunk(std::string_view octets, std::string& out) {
    MessageSink sink(*this);
    const size_t taken = framer_.feed(octets, sink);
    if (chunk_refusal_.code == 0 && judge_message().code != 0) abandon();
    if (framer_.ended()) end_chunk(out);
    return taken;
}

void ServerSession::end_chunk(std::string& out) {
    reading_ = Reading::commands;
    if (chunk_refusal_.code == 0) {
        if (chunk_last_) {
            MessageSink sink(*this);
            framer_.finish_message(sink);
            return end_message(out);
        }
        chunk_refusal_ = judge_message();
        if (chunk_refusal_.code != 0) {
            transaction_->failed = true;
            abandon();
        }
    }
    if (chunk_refusal_.code != 0) {
        const Stage stage = chunk_last_ ? Stage::end_of_data : Stage::data;
        const std::string_view about = envelope().sender();
        // The chunks that a client had sent before it saw the first refusal are not errors of their own.
        if (chunk_refusal_.code == 551) {
            say_refusal(stage, chunk_refusal_, about, out);
        } else {
            count_error(stage, chunk_refusal_, about, out);
        }
        if (chunk_last_) reset_transaction();
        return;
    }
    char text[48];
    const int length =
        std::snprintf(text, sizeof text, "%llu octets received", static_cast<unsigned long long>(chunk_bytes_));
    say(Stage::data, {250, "2.0.0", {text, static_cast<size_t>(length)}}, out);
}

// The facts only ever grow worse, so this can be asked at any time; what it says at the end does not depend on how the
// input was split.
Reply ServerSession::judge_message() const {
    const DataFacts& facts = framer_.facts();
    if (facts.bytes > settings_.message_bytes_max) return message_too_big;
    if (facts.header_bytes > settings_.header_bytes_max) return {552, "5.3.4", "Message header too big"};
    if (facts.received_fields > settings_.hops_max) return {554, "5.4.6", "Too many hops, the mail is looping"};
    if (settings_.bare_newline == BareNewline::normalize) return {};
    if ((facts.bare_cr || facts.bare_lf) && envelope().body != BodyType::binary_mime)
        return {550, "5.5.2", "Bare CR or LF in the message"};
    if (facts.nul_in_header) return {550, "5.6.0", "NUL in the message header"};
    return {};
}

void ServerSession::end_message(std::string& out) {
    reading_ = Reading::commands;
    if (const Reply refusal = judge_message(); refusal.code != 0) {
        abandon();
        count_error(Stage::end_of_data, refusal, envelope().sender(), out);
        reset_transaction();
        return;
    }
    transaction_->owner_waits = false;
    transaction_->storing = false;
    settle(Question::data_end, events_.on_data_end(transaction_->envelope, framer_.facts()), out);
}

// The end of data clears everything, whatever the answer (RFC 5321 §4.1.1.4).
void ServerSession::answer_data_end(const Reply& reply, std::string& out) {
    if (reply.code >= 400) {
        count_error(Stage::end_of_data, reply, envelope().sender(), out);
    } else {
        errors_ = 0;
        junk_commands_ = 0;
        discarded_bytes_ = 0;
        say_accept(Stage::end_of_data, reply, {250, "2.0.0", "Message accepted"}, out);
    }
    reset_transaction();
}

uint64_t ServerSession::discard_bytes_max() const {
    const uint64_t limit = settings_.message_bytes_max;
    return saturating_add(saturating_add(limit, limit), discard_bytes_extra);
}

}  // namespace postern::proto
