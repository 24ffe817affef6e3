#include "ring/stream.hpp"

#include <algorithm>
#include <cerrno>

namespace postern::ring {

namespace {

constexpr size_t large_send_bytes = 4096;       // from here on a piece is sent at once instead of gathered
constexpr size_t gathered_bytes_max = 16 * 1024;    // many small ones do not wait for the end of the turn either
constexpr Monotonic never{INT64_MAX};

}  // namespace

Stream::Stream(Loop& loop, StreamHandler& handler, const StreamLimits& limits)
    : loop_(loop), handler_(handler), limits_(limits), timer_(*this) {}

Stream::~Stream() {
    CHECK_INVARIANT(state_ == State::idle || state_ == State::closed);
}

void Stream::start(UniqueFd connected) {
    CHECK_INVARIANT(state_ == State::idle);
    fd_ = std::move(connected);
    token_ = loop_.attach(*this);
    state_ = State::open;
    arm_receive_if_wanted();
}

void Stream::connect(const SocketAddress& address) {
    CHECK_INVARIANT(state_ == State::idle);
    token_ = loop_.attach(*this);
    state_ = State::connecting;
    auto socket = connecting_socket(address.family);
    if (!socket) return fail(socket.error().code);
    fd_ = std::move(*socket);
    loop_.ring().connect(fd_.get(), address, Loop::with_kind(token_, kind_connect));
    now_in_flight(kind_connect);
}

// ---- completions ----------------------------------------------------------------------------------------------------

void Stream::on_completion(uint8_t kind, const Completion& completion) {
    if (!completion.more) in_flight_ = static_cast<uint8_t>(in_flight_ & ~(1u << kind));
    switch (kind) {
        case kind_receive: on_receive(completion); break;
        case kind_send: on_send(completion.result); break;
        case kind_connect: on_connect(completion.result); break;
        default: on_cancelled(static_cast<Kind>(kind - kind_cancel), completion.result); break;
    }
    if (state_ == State::ending && quiet()) loop_.at_end_of_turn(*this);
}

void Stream::on_connect(int32_t result) {
    if (state_ != State::connecting) return;
    if (result < 0) return fail(-result);
    state_ = State::open;
    arm_receive_if_wanted();
    if (!gathering_.empty()) loop_.at_end_of_turn(*this);
    handler_.on_connected();
}

void Stream::cancel(Kind kind) {
    if (!in_flight(kind) || in_flight(kind_cancel + kind)) return;
    const auto cancel_kind = static_cast<uint8_t>(kind_cancel + kind);
    loop_.ring().cancel(Loop::with_kind(token_, kind), Loop::with_kind(token_, cancel_kind));
    now_in_flight(cancel_kind);
}

void Stream::on_cancelled(Kind kind, int32_t result) {
    // Not found although it is there (seen on 6.11), or past cancelling: closing the socket's both ways ends it.
    if (state_ == State::ending && in_flight(kind) && result <= 0) shutdown_both(fd_.get());
    arm_receive_if_wanted();
}

// ---- receiving ------------------------------------------------------------------------------------------------------

bool Stream::receive_wanted() const {
    if (end_of_input_ || in_flight(kind_receive) || in_flight(kind_cancel + kind_receive)) return false;
    if (state_ == State::open) return !paused_;
    // Read and dropped, so that close sends no RST; but not for ever.
    return (state_ == State::flushing || state_ == State::lingering) && dropped_bytes_ <= limits_.linger_bytes_max;
}

void Stream::arm_receive_if_wanted() {
    if (!receive_wanted()) return;
    loop_.stop_waiting(*this);
    received_since_armed_ = false;
    loop_.ring().receive_multishot(fd_.get(), Loop::with_kind(token_, kind_receive));
    now_in_flight(kind_receive);
}

void Stream::on_receive(const Completion& completion) {
    if (state_ == State::ending) return;
    const int32_t result = completion.result;
    if (result > 0) {
        received_since_armed_ = true;
        const auto bytes = static_cast<size_t>(result);
        const std::string_view octets = loop_.ring().buffer(completion.buffer, bytes);
        if (state_ == State::open) {
            if (paused_ || !unconsumed_.empty()) keep(octets);
            else show(octets, completion.more_waiting);
        } else if ((dropped_bytes_ += bytes) > limits_.linger_bytes_max) {
            if (state_ == State::lingering) return end();
            cancel(kind_receive);                       // still flushing: the peer may read, but is not read any more
        }
    } else if (result == 0) {
        end_of_input_ = true;
        if (state_ == State::lingering) return end();
        show_end_of_input_if_due();
    } else if (result == -ENOBUFS) {
        ++loop_.counters().receive_starved;
        return loop_.wait_for_buffers(*this, !received_since_armed_);
    } else if (result != -ECANCELED && result != -EINTR && result != -EAGAIN) {
        return fail(-result);
    }
    // Any multishot may end on a success (trap 10).
    arm_receive_if_wanted();
}

void Stream::show(std::string_view octets, bool more_waiting) {
    more_expected_ = more_waiting;
    const size_t consumed = handler_.on_received(octets);
    more_expected_ = false;
    CHECK_INVARIANT(consumed <= octets.size());
    if (consumed == octets.size() || state_ != State::open) return;
    paused_ = true;
    keep(octets.substr(consumed));
}

void Stream::keep(std::string_view octets) {
    if (unconsumed_.empty()) unconsumed_ = loop_.strings().take();
    unconsumed_.append(octets);
    if (unconsumed_.size() > limits_.unconsumed_bytes_max) cancel(kind_receive);
}

void Stream::show_kept() {
    // Out of the way while it is shown: the handler may close or abort, which drops what is kept.
    std::string kept;
    kept.swap(unconsumed_);
    const size_t consumed = handler_.on_received(kept);
    CHECK_INVARIANT(consumed <= kept.size());
    if (consumed == kept.size() || state_ != State::open) return loop_.strings().put(kept);
    paused_ = true;
    kept.erase(0, consumed);
    unconsumed_.swap(kept);
}

void Stream::show_end_of_input_if_due() {
    if (!end_of_input_ || end_shown_ || paused_ || !unconsumed_.empty() || state_ != State::open) return;
    end_shown_ = true;
    handler_.on_end_of_input();
}

void Stream::pause() {
    paused_ = true;
    resume_due_ = false;
}

void Stream::resume() {
    if (state_ != State::open) return;
    resume_due_ = true;
    loop_.at_end_of_turn(*this);
}

void Stream::quick_ack() {
    if (fd_) ring::quick_ack(fd_.get());
}

// ---- sending --------------------------------------------------------------------------------------------------------

size_t Stream::unsent_bytes() const { return gathering_.size() + sending_.size() - sent_of_sending_; }

void Stream::send(std::string_view octets) {
    if ((state_ != State::open && state_ != State::connecting) || octets.empty()) return;
    sent_due_ = true;
    const bool much = octets.size() >= large_send_bytes || gathering_.size() + octets.size() >= gathered_bytes_max;
    const bool at_once = much && state_ == State::open && limits_.send_mode == SendMode::direct && !in_flight(kind_send);
    if (at_once && gathering_.empty()) {        // not copied but for what the kernel does not take
        ++loop_.counters().direct_sends;
        const int sent = send_now(fd_.get(), octets);
        if (sent < 0 && sent != -EAGAIN) return fail(-sent);
        octets.remove_prefix(static_cast<size_t>(std::max(sent, 0)));
        loop_.at_end_of_turn(*this);                    // for on_sent()
        if (octets.empty()) return;
        gathering_ = loop_.strings().take();
        gathering_.append(octets);
        send_remainder(0);
    } else {
        if (gathering_.empty()) gathering_ = loop_.strings().take();
        gathering_.append(octets);
        if (at_once) flush();
        loop_.at_end_of_turn(*this);
    }
    if (limits_.unsent_bytes_max != 0 && unsent_bytes() > limits_.unsent_bytes_max && state_ != State::ending) {
        reset_on_close(fd_.get());
        fail(ENOBUFS);
    }
}

// Sends what is gathered, unless a send is in flight: octets would pass each other (trap 20).
void Stream::flush() {
    if (gathering_.empty() || in_flight(kind_send)) return;
    if (limits_.send_mode == SendMode::ring) return send_remainder(0);
    ++loop_.counters().direct_sends;
    const int sent = send_now(fd_.get(), gathering_);
    if (sent < 0 && sent != -EAGAIN) return fail(-sent);
    if (static_cast<size_t>(std::max(sent, 0)) == gathering_.size()) return loop_.strings().put(gathering_);
    send_remainder(static_cast<size_t>(std::max(sent, 0)));
}

// The ring sends what is gathered from `sent` on.
void Stream::send_remainder(size_t sent) {
    if (limits_.send_mode == SendMode::direct) ++loop_.counters().short_sends;
    sending_.swap(gathering_);
    sent_of_sending_ = sent;
    send_through_ring();
}

void Stream::send_through_ring() {
    ++loop_.counters().ring_sends;
    loop_.ring().send(fd_.get(), std::string_view(sending_).substr(sent_of_sending_), Loop::with_kind(token_, kind_send));
    now_in_flight(kind_send);
}

void Stream::on_send(int32_t result) {
    if (state_ == State::ending) return;
    if (result < 0 && result != -EAGAIN && result != -EINTR) return fail(-result);
    sent_of_sending_ += static_cast<size_t>(std::max(result, 0));
    if (sent_of_sending_ < sending_.size()) {       // short in spite of MSG_WAITALL (trap 19)
        ++loop_.counters().short_sends;
        return send_through_ring();
    }
    loop_.strings().put(sending_);
    sent_of_sending_ = 0;
    loop_.at_end_of_turn(*this);                    // what was gathered meanwhile, on_sent(), or the next step of close()
}

void Stream::report_sent_when_empty() {
    if (!sent_due_ || state_ != State::open || unsent_bytes() != 0) return;
    sent_due_ = false;
    handler_.on_sent();
}

// ---- deadlines ------------------------------------------------------------------------------------------------------

void Stream::set_deadline(Duration from_now) {
    deadline_ = loop_.now() + from_now;
    has_deadline_ = true;
    update_timer();
}

void Stream::clear_deadline() { has_deadline_ = false; }

// The timer is left alone while it fires early enough: it finds out then what is due, and arms itself again.
void Stream::update_timer() {
    if (state_ >= State::ending) return;
    Monotonic due = has_deadline_ ? deadline_ : never;
    if (state_ == State::lingering) due = std::min(due, linger_until_);
    if (due == never || (timer_.armed() && timer_due_ <= due)) return;
    timer_due_ = due;
    loop_.timers().arm(timer_, due);
}

void Stream::on_timer(Timer&) {
    if (state_ == State::lingering && linger_until_ <= loop_.now()) return end();
    if (has_deadline_ && deadline_ <= loop_.now()) {
        has_deadline_ = false;
        handler_.on_deadline();
    }
    update_timer();
}

// ---- the end of a turn, and of the stream ---------------------------------------------------------------------------

void Stream::on_end_of_turn() {
    if (resume_due_ && state_ == State::open) {
        resume_due_ = false;
        paused_ = false;
        if (!unconsumed_.empty()) show_kept();
        show_end_of_input_if_due();
        arm_receive_if_wanted();
    }
    if (state_ == State::open) {
        flush();
        report_sent_when_empty();
    }
    if (state_ == State::flushing) continue_closing();
    if (state_ != State::ending || !quiet()) return;
    loop_.detach(token_);
    fd_.reset();
    state_ = State::closed;
    handler_.on_closed(error_);     // may destroy us
}

void Stream::close() {
    if (state_ >= State::flushing) return;
    if (state_ == State::idle || state_ == State::connecting) return fail(ECONNABORTED);
    state_ = State::flushing;
    loop_.strings().put(unconsumed_);
    loop_.at_end_of_turn(*this);
    arm_receive_if_wanted();
}

void Stream::continue_closing() {
    flush();
    if (state_ != State::flushing || unsent_bytes() != 0) return;
    shutdown_write(fd_.get());
    if (end_of_input_ || dropped_bytes_ > limits_.linger_bytes_max) return end();
    state_ = State::lingering;
    linger_until_ = loop_.now() + limits_.linger;
    update_timer();
}

void Stream::abort() {
    if (state_ >= State::ending) return;
    if (fd_) reset_on_close(fd_.get());
    fail(ECONNABORTED);
}

void Stream::fail(int error) {
    if (state_ >= State::ending) return;
    error_ = error;
    end();
}

// on_closed() follows in a call of its own, when the kernel has let go of everything.
void Stream::end() {
    if (token_ == 0) token_ = loop_.attach(*this);      // closed before it was started
    state_ = State::ending;
    timer_.cancel();
    loop_.stop_waiting(*this);
    loop_.strings().put(unconsumed_);
    loop_.strings().put(gathering_);                    // sending_ belongs to the kernel while it is in flight
    for (const Kind kind : {kind_receive, kind_send, kind_connect}) cancel(kind);
    loop_.at_end_of_turn(*this);
}

}  // namespace postern::ring
