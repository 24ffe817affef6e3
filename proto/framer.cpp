// How it works.  step() takes one octet through the state machine and is the whole definition of the framing.  scan()
// skips octets for which step() would do nothing but remember, 64 at a time; it stops at each octet that step() must
// see: in DATA a dot at the start of a line, in normalize mode a bare CR or LF, in the header each start of a line.
//
// Octets are given out in runs: [run, p) of the present input has been accepted unchanged and is not yet given out.
//
// The first line goes through step() until judge_first_line() knows what it is, at the latest at its 78th octet.  Until
// then give() withholds.  That is a copy only when the input ends there (or a lone CR is rewritten): otherwise the
// octets are still in the run when the answer is known.
#include "proto/framer.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "proto/octet_masks.hpp"
#include "ring/base/check.hpp"

namespace postern::proto {

namespace {

constexpr std::string_view received_name = "received:";
constexpr uint8_t no_match = 0xff;

bool in_field_name(char octet) { return octet >= '!' && octet <= '~' && octet != ':'; }

}  // namespace

struct DataFramer::Input {
    std::string_view octets;
    DataSink& sink;
    size_t run = 0;
};

void DataFramer::begin_message(BareNewline policy) {
    facts_ = DataFacts{};
    policy_ = policy;
    state_ = State::line_start;
    match_ = no_match;
    first_line_ = FirstLine::name;
    withheld_bytes_ = 0;
    mode_ = Mode::chunk;
    chunk_left_ = 0;
    ended_ = true;
}

void DataFramer::begin_data(BareNewline policy) {
    begin_message(policy);
    mode_ = Mode::data;
    ended_ = false;
}

void DataFramer::begin_chunk(uint64_t bytes) {
    CHECK_INVARIANT(mode_ == Mode::chunk && ended_);
    chunk_left_ = bytes;
    ended_ = bytes == 0;
}

size_t DataFramer::feed(std::string_view octets, DataSink& sink) {
    if (ended_ || octets.empty()) return 0;
    if (mode_ == Mode::chunk) octets = octets.substr(0, std::min<uint64_t>(octets.size(), chunk_left_));
    Input input{octets, sink};
    // A CR that waited for its LF (normalize) was not given out yet.
    if (cr_withheld() && octets[0] == '\n') give(input, "\r");

    size_t at = 0;
    while (at < octets.size() && !ended_) {
        if (can_scan()) {
            at = scan_from(octets, at);
            if (at == octets.size()) break;
        }
        step(input, at);
        ++at;
    }
    if (!ended_) give_run(input, cr_withheld() ? at - 1 : at);
    if (!facts_.header_ended) facts_.header_bytes = saturated(facts_.bytes);
    facts_.ends_with_crlf = state_ != State::text && state_ != State::text_cr && state_ != State::blank_cr;
    if (mode_ == Mode::chunk) {
        chunk_left_ -= at;
        ended_ = chunk_left_ == 0;
    }
    return at;
}

void DataFramer::finish_message(DataSink& sink) {
    CHECK_INVARIANT(mode_ == Mode::chunk && ended_);
    Input input{{}, sink};
    if (state_ == State::text_cr || state_ == State::blank_cr) {
        bare_cr(input, 0);
        state_ = State::text;
    }
    if (withheld_bytes_ != 0) settle_first_line(input, FirstLine::body);        // a name without ':' is no field
    if (!facts_.header_ended) facts_.header_bytes = saturated(facts_.bytes);
    facts_.ends_with_crlf = state_ != State::text;
}

// In the header each line's start goes through step(); in the body only what is rare does.
bool DataFramer::can_scan() const {
    const bool in_text = state_ == State::text || state_ == State::text_cr;
    if (facts_.header_ended) return in_text || state_ == State::line_start;
    return in_text && match_ == no_match && first_line_known();
}

// A CR is given out at once in reject mode; in normalize it may have to become a blank.
bool DataFramer::cr_withheld() const {
    return policy_ == BareNewline::normalize && (state_ == State::text_cr || state_ == State::blank_cr);
}

uint32_t DataFramer::saturated(uint64_t bytes) { return static_cast<uint32_t>(std::min<uint64_t>(bytes, UINT32_MAX)); }

void DataFramer::give(Input& input, std::string_view slice) {
    facts_.bytes += slice.size();
    if (!first_line_known()) return withhold(slice);
    input.sink.on_data(slice);
}

void DataFramer::withhold(std::string_view slice) {
    CHECK_INVARIANT(withheld_bytes_ + slice.size() <= sizeof withheld_);
    std::memcpy(withheld_ + withheld_bytes_, slice.data(), slice.size());
    withheld_bytes_ = static_cast<uint8_t>(withheld_bytes_ + slice.size());
}

void DataFramer::give_run(Input& input, size_t end) {
    if (end > input.run && end <= input.octets.size()) give(input, input.octets.substr(input.run, end - input.run));
    input.run = end;
}

// Octets of the message before the one at `at`.
uint64_t DataFramer::position(const Input& input, size_t at) const {
    return facts_.bytes + (at > input.run ? at - input.run : 0);
}

// `octet` is the one at `at`, or what that is rewritten to, and may tell what the first line is.
void DataFramer::judge_first_line(Input& input, char octet, size_t at) {
    const uint64_t before = position(input, at);
    if (octet == ':' && before != 0) return settle_first_line(input, FirstLine::header);
    if (first_line_ == FirstLine::name) {
        if (octet == '\r' && (before == 0 || policy_ == BareNewline::normalize)) return;       // the next octet tells
        if (in_field_name(octet) && before < field_name_bytes_max) return;
        if ((octet == ' ' || octet == '\t') && before != 0) {
            first_line_ = FirstLine::blank;
            return;
        }
    }
    settle_first_line(input, FirstLine::body);
}

void DataFramer::settle_first_line(Input& input, FirstLine what) {
    if (first_line_known()) return;
    first_line_ = what;
    if (what == FirstLine::body) {
        facts_.parted_from_trace = true;
        end_header(2);
        give(input, "\r\n");
    }
    if (withheld_bytes_ != 0) input.sink.on_data({withheld_, std::exchange(withheld_bytes_, 0)});
}

void DataFramer::end_header(uint64_t bytes) {
    facts_.header_ended = true;
    facts_.header_bytes = saturated(bytes);
    match_ = no_match;
}

// The CR before `at` has no LF.
void DataFramer::bare_cr(Input& input, size_t at) {
    facts_.bare_cr = true;
    if (policy_ == BareNewline::reject) {
        settle_first_line(input, FirstLine::body);      // if not known, the CR is its first octet
        return;
    }
    give_run(input, at == 0 ? 0 : at - 1);
    input.run = at;
    if (!first_line_known()) judge_first_line(input, ' ', at);
    give(input, " ");
}

void DataFramer::step(Input& input, size_t at) {
    const char octet = input.octets[at];
    if (static_cast<unsigned char>(octet) > 0x7f) facts_.eight_bit = true;

    switch (state_) {
        case State::text_cr:
        case State::blank_cr:
            if (octet == '\n') {
                const bool empty_line = state_ == State::blank_cr;
                settle_first_line(input, empty_line ? FirstLine::header : FirstLine::body);
                if (empty_line && !facts_.header_ended) end_header(position(input, at + 1));
                state_ = State::line_start;
                return;
            }
            bare_cr(input, at);
            break;
        case State::dot_cr:
            if (octet == '\n') {        // CRLF.CRLF
                ended_ = true;
                return;
            }
            // A line that began with a dot and a bare CR: the dot was stuffing, the CR is data.
            facts_.bare_cr = true;
            input.run = at;
            settle_first_line(input, FirstLine::body);
            give(input, policy_ == BareNewline::normalize ? " " : "\r");
            break;
        case State::dot:
            if (octet == '\r') {
                input.run = at + 1;
                state_ = State::dot_cr;
                return;
            }
            step_at_start(input, at);
            return;
        case State::line_start:
            if (octet == '.' && mode_ == Mode::data) {
                give_run(input, at);
                input.run = at + 1;
                state_ = State::dot;
                return;
            }
            step_at_start(input, at);
            return;
        case State::soft_start:
            step_at_start(input, at);
            return;
        case State::text:
            break;
    }
    step_inside(input, at, State::text_cr);
}

// `at` is the first octet of a line of the message.
void DataFramer::step_at_start(Input& input, size_t at) {
    const char octet = input.octets[at];
    if (octet == '.') facts_.dot_line = true;
    if (!facts_.header_ended) {
        match_ = 0;
        if (octet == '\n' && policy_ == BareNewline::normalize) {
            settle_first_line(input, FirstLine::header);
            end_header(position(input, at) + 2);
        }
    }
    step_inside(input, at, State::blank_cr);
}

void DataFramer::step_inside(Input& input, size_t at, State after_cr) {
    const char octet = input.octets[at];
    if (!facts_.header_ended) step_in_header(input, at);
    if (octet == '\r') {
        state_ = after_cr;
    } else if (octet == '\n') {
        facts_.bare_lf = true;
        state_ = State::text;
        if (policy_ == BareNewline::reject) return;
        give_run(input, at);
        input.run = at + 1;
        give(input, "\r\n");
        state_ = State::soft_start;
    } else {
        state_ = State::text;
    }
}

void DataFramer::step_in_header(Input& input, size_t at) {
    const char octet = input.octets[at];
    if (!first_line_known()) judge_first_line(input, octet, at);
    if (facts_.header_ended) return;
    if (octet == '\0') facts_.nul_in_header = true;
    match(octet);
}

void DataFramer::match(char octet) {
    if (match_ == no_match) return;
    const char small = octet >= 'A' && octet <= 'Z' ? static_cast<char>(octet + 32) : octet;
    if (small != received_name[match_]) {
        match_ = no_match;
    } else if (++match_ == received_name.size()) {
        ++facts_.received_fields;
        match_ = no_match;
    }
}

size_t DataFramer::scan_from(std::string_view octets, size_t at) {
    if (!facts_.header_ended) return scan<true, true>(octets, at);
    if (mode_ == Mode::data || policy_ == BareNewline::normalize) return scan<false, true>(octets, at);
    return scan<false, false>(octets, at);
}

// Returns the first octet that step() must see, or the end.  `header`: stop at line starts, look for NUL.  `stopping`:
// there is anything to stop for at all; a BDAT body in reject mode has nothing.
template <bool header, bool stopping>
size_t DataFramer::scan(std::string_view octets, size_t at) {
    uint64_t cr_before = state_ == State::text_cr;
    uint64_t start_here = state_ == State::line_start;
    uint64_t bare_cr = 0, bare_lf = 0, nul = 0, high = 0, dot_starts = 0;
    const bool data = mode_ == Mode::data;
    const uint64_t data_stops = data ? ~uint64_t{0} : 0;
    const uint64_t normalize_stops = policy_ == BareNewline::normalize ? ~uint64_t{0} : 0;
    bool stopped = false;

    while (at < octets.size() && !stopped) {
        OctetMasks masks;
        size_t taken = std::min<size_t>(octets.size() - at, mask_block_bytes);
        uint64_t valid = ~uint64_t{0};
        if (taken == mask_block_bytes) {
            masks = Masks::of<header>(octets.data() + at);
        } else {
            char tail[mask_block_bytes] = {};
            std::memcpy(tail, octets.data() + at, taken);
            masks = Masks::of<header>(tail);
            valid = (uint64_t{1} << taken) - 1;
        }
        const uint64_t after_cr = (masks.cr << 1) | cr_before;          // the octet before is a CR
        const uint64_t line_ends = after_cr & masks.lf;                 // the LF of a CRLF
        const uint64_t line_starts = (line_ends << 1) | start_here;
        const uint64_t dots = masks.dot & line_starts;
        const uint64_t bare = after_cr ^ masks.lf;
        if constexpr (stopping) {
            uint64_t stops = (dots & data_stops) | (bare & normalize_stops);
            if constexpr (header) stops |= line_starts;
            stops &= valid;
            if (stops != 0) {
                taken = static_cast<size_t>(std::countr_zero(stops));
                valid = (uint64_t{1} << taken) - 1;
                stopped = true;
            }
        }
        bare_cr |= after_cr & ~masks.lf & valid;
        bare_lf |= masks.lf & ~after_cr & valid;
        high |= masks.high & valid;
        dot_starts |= dots & valid;
        if constexpr (header) nul |= masks.nul & valid;
        if (taken != 0) {
            cr_before = (masks.cr >> (taken - 1)) & 1;
            start_here = (line_ends >> (taken - 1)) & 1;
        }
        at += taken;
    }
    state_ = start_here ? State::line_start : cr_before ? State::text_cr : State::text;
    facts_.bare_cr |= bare_cr != 0;
    facts_.bare_lf |= bare_lf != 0;
    facts_.eight_bit |= high != 0;
    facts_.dot_line |= dot_starts != 0;
    facts_.nul_in_header |= nul != 0;
    return at;
}

}  // namespace postern::proto
