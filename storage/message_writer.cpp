#include "storage/spool_impl.hpp"

namespace postern::storage {

MessageWriter::MessageWriter(Spool& spool) : spool_(spool) {}
MessageWriter::~MessageWriter() { abandon(); }

bool MessageWriter::open() const { return state_ != nullptr; }
uint64_t MessageWriter::bytes() const { return state_ ? state_->bytes : 0; }
bool MessageWriter::committing() const { return state_ && state_->stage != WriterState::Stage::open; }

Result<void, SpoolError> MessageWriter::begin(QueueId id) {
    CHECK_INVARIANT(!state_);
    Spool::Impl& impl = spool_.impl();
    if (!impl.committer.healthy()) return fail(SpoolError::failed);
    if (!impl.has_room(0)) return fail(SpoolError::full);
    state_ = impl.take_state();
    state_->owner = this;
    state_->id = id;
    return {};
}

Result<void, SpoolError> MessageWriter::append(std::string_view slice) {
    CHECK_INVARIANT(state_ && state_->stage == WriterState::Stage::open);
    WriterState& state = *state_;
    if (state.failed) return fail(state.error);
    while (!slice.empty()) {
        const std::string_view piece = slice.substr(0, tail_bytes_max);
        if (state.slice_count == state.slices.size() || state.slice_bytes + piece.size() > tail_bytes_max) {
            settle();
            if (state.failed) return fail(state.error);
        }
        state.slices[state.slice_count++] = piece;
        state.slice_bytes += static_cast<uint32_t>(piece.size());
        state.bytes += piece.size();
        slice.remove_prefix(piece.size());
    }
    return {};
}

void MessageWriter::settle() {
    if (!state_ || state_->slice_count == 0) return;
    MessageWriter::State& state = *state_;
    Spool::Impl& impl = spool_.impl();
    for (uint32_t i = 0; i < state.slice_count && !state.failed; ++i)
        if (!state.chunks.append(impl.chunks, state.slices[i])) state.fail(SpoolError::full);
    state.slice_count = state.slice_bytes = 0;
    state.open_node().unlink();
    if (state.stage != WriterState::Stage::open || state.failed) return;
    impl.writers_with_chunks.push_back(state);
    if (state.chunks.bytes() >= fragment_bytes_max) impl.committer.spill(state);
    if (impl.chunks.low()) impl.relieve_pressure();
}

void MessageWriter::commit(std::string_view envelope, const MessageAttributes& attributes, CommitWaiter& waiter) {
    CHECK_INVARIANT(state_ && state_->stage == WriterState::Stage::open);
    MessageWriter::State& state = *state_;
    state.attributes = attributes;
    state.attributes.bytes = state.bytes;
    state.envelope = envelope;
    state.waiter = &waiter;
    state.spill_all = false;
    state.open_node().unlink();
    if (envelope.size() > envelope_bytes_max || attributes.recipient_count > recipients_max ||
        attributes.recipient_count == 0)
        state.fail(SpoolError::too_fragmented);
    spool_.impl().committer.commit(state);
}

void MessageWriter::abandon() {
    if (!state_) return;
    Spool::Impl& impl = spool_.impl();
    impl.committer.forget(*state_);
    impl.give_back_state(*state_);
}

// ---- The pool of states ---------------------------------------------------------------------------------------------------

MessageWriter::State* Spool::Impl::take_state() {
    if (free_states.empty()) {
        writer_states.push_back(std::make_unique<MessageWriter::State>());
        free_states.reserve(writer_states.size());
        free_states.push_back(writer_states.back().get());
    }
    MessageWriter::State* state = free_states.back();
    free_states.pop_back();
    return state;
}

void Spool::Impl::give_back_state(MessageWriter::State& state) {
    state.owner->state_ = nullptr;
    state.waiting_node().unlink();
    state.open_node().unlink();
    state.chunks.clear(chunks);
    for (const uint32_t segment : std::exchange(state.pinned, {})) segments.unpin(segment);
    state.parts.clear();
    if (state.kept_envelope.capacity() > 16_KiB) state.kept_envelope = {};
    state.stage = WriterState::Stage::open;
    state.spill_all = state.failed = false;
    state.bytes = state.slice_count = state.slice_bytes = 0;
    state.waiter = nullptr;
    state.owner = nullptr;
    free_states.push_back(&state);
    if (!waiting_for_relief.empty()) loop.at_end_of_turn(*this);
}

void Spool::Impl::on_end_of_turn() {
    if (chunks.low()) return;
    IntrusiveList<Relief, Relief> relieved;
    relieved.splice_back(waiting_for_relief);
    while (Relief* relief = relieved.pop_front()) relief->on_relieved();
}

// The pool is low: the message that has been silent longest goes to the log, however little of it there is.
void Spool::Impl::relieve_pressure() {
    for (int tries = 0; tries < 8 && chunks.low(); ++tries) {
        WriterState* writer = writers_with_chunks.pop_front();
        if (!writer) return;
        writers_with_chunks.push_back(*writer);
        if (writer->chunks.bytes() == 0 || writer->waiting_node().linked()) continue;
        writer->spill_all = true;
        committer.spill(*writer);
    }
}

}  // namespace postern::storage
