#include "ring/listener.hpp"

#include <cerrno>

namespace postern::ring {

namespace {

constexpr uint8_t kind_accept = Loop::kind_first;
constexpr uint8_t kind_cancel = 1;
constexpr Duration pause_after_failure = milliseconds(100);

// The connection that was to be accepted is gone, or the call was interrupted; the next may well succeed.
bool concerns_one_connection(int error) {
    switch (error) {
        case EINTR:
        case EAGAIN:
        case ECONNABORTED:
        case EPROTO: return true;
        default: return false;
    }
}

}  // namespace

Listener::Listener(Loop& loop, ListenerHandler& handler, UniqueFd listening)
    : loop_(loop), handler_(handler), fd_(std::move(listening)), retry_(*this) {}

Listener::~Listener() {
    CHECK_INVARIANT(state_ == State::idle || state_ == State::closed);
}

uint16_t Listener::port() const { return bound_port(fd_.get()).value_or(0); }

void Listener::start() {
    CHECK_INVARIANT(state_ == State::idle);
    token_ = loop_.attach(*this);
    state_ = State::open;
    arm();
}

void Listener::arm() {
    loop_.ring().accept_multishot(fd_.get(), Loop::with_kind(token_, kind_accept));
    armed_ = true;
}

void Listener::on_completion(uint8_t kind, const Completion& completion) {
    if (kind == kind_cancel) {
        cancelling_ = false;
        // Finished, unless the kernel did not find what it should have cancelled: then once more, a little later.
        if (armed_ && completion.result < 0) loop_.arm(retry_, pause_after_failure);
    } else {
        if (!completion.more) armed_ = false;
        if (completion.result >= 0) {
            // Also while closing: it was accepted, so it is served.
            handler_.on_accepted(UniqueFd(completion.result));
        } else if (completion.result != -ECANCELED) {
            ++loop_.counters().accept_errors;
            if (!concerns_one_connection(-completion.result) && state_ == State::open) {
                // Descriptors or memory ran out, or the socket is broken: arming at once would spin (trap 16).
                loop_.arm(retry_, pause_after_failure);
                return handler_.on_accept_failed(-completion.result);
            }
        }
        if (state_ == State::open && !armed_ && !retry_.armed()) arm();
    }
    if (state_ == State::closing && !armed_ && !cancelling_) finish();
}

void Listener::on_timer(Timer&) {
    if (state_ == State::closing && !armed_) {
        if (!cancelling_) finish();
        return;
    }
    if (state_ == State::closing) return cancel();
    if (state_ == State::open && !armed_) arm();
}

void Listener::cancel() {
    loop_.ring().cancel(Loop::with_kind(token_, kind_accept), Loop::with_kind(token_, kind_cancel));
    cancelling_ = true;
}

void Listener::close() {
    if (state_ == State::idle) {
        fd_.reset();
        state_ = State::closed;
    }
    if (state_ != State::open) return;
    state_ = State::closing;
    retry_.cancel();
    if (armed_) cancel();
    else loop_.arm(retry_, Duration{});     // not from within this call: finish() calls the handler
}

void Listener::finish() {
    retry_.cancel();
    for (int connection; (connection = accept_now(fd_.get())) >= 0;) handler_.on_accepted(UniqueFd(connection));
    fd_.reset();
    loop_.detach(token_);
    state_ = State::closed;
}

}  // namespace postern::ring
