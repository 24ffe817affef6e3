// DataFramer: the one framer of message data (P3).  DATA and BDAT, kept and discarded data, all go through it.
//
// DATA: only CRLF.CRLF ends the data, the CRLF of the DATA command being the first; one leading dot of a line is removed.
// BDAT: exactly the announced octets, nothing removed.  In both the same facts are noted while the octets pass, at a
// cost per 64-octet block, not per line.
// Output: slices of the input (or of short literals), in order, valid until the next call.  Any split of the input gives
// the same octets and the same facts.  What the next octet may change is withheld: a CR or a dot, and at most
// first_line_withheld_max octets of the first line, until it is known whether that is a header field.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace postern::proto {

enum class BareNewline : uint8_t { reject, normalize };     // normalize: LF and lone CR are rewritten, see DataFacts

struct DataFacts {
    uint64_t bytes = 0;                 // unstuffed octets, given out or withheld in the first line
    uint32_t received_fields = 0;       // "Received:" at line starts of the header, any case
    uint32_t header_bytes = 0;          // up to and with the blank line (saturates at 4 GiB)
    bool header_ended = false;
    bool bare_cr = false;               // CR not before LF
    bool bare_lf = false;               // LF not after CR
    bool nul_in_header = false;
    bool eight_bit = false;             // an octet above 127
    bool dot_line = false;              // a line of the unstuffed message begins with '.': output must be stuffed
    // The first line is neither empty nor a header field, and would stand in the header block that our Received field
    // opens, or continue that field.  An empty line was given out before it, and is counted: `header_bytes` is 2 and
    // nothing behind it is header.
    bool parted_from_trace = false;
    bool ends_with_crlf = true;         // also of an empty message
};

// The first line is a header field when it begins with a name of 1 to 76 octets 33..126 but ':', perhaps one blank, and
// ':' (RFC 5322 §2.2, §4.5.8).
constexpr size_t field_name_bytes_max = 76;
constexpr size_t first_line_withheld_max = field_name_bytes_max + 1;    // the name and the blank; the next octet tells

class DataSink {
public:
    virtual void on_data(std::string_view slice) = 0;

protected:
    ~DataSink() = default;
};

class DataFramer {
public:
    void begin_data(BareNewline policy);        // after the CRLF of the DATA line
    void begin_message(BareNewline policy);     // BDAT: a new message; chunks follow
    void begin_chunk(uint64_t bytes);           // the next chunk of it
    // Gives the slices of the message in `octets` to the sink, and returns how many octets were data: fewer than all
    // exactly when the data (or the chunk) ended there.  DATA: the terminator is consumed, not given out.
    size_t feed(std::string_view octets, DataSink& sink);
    bool ended() const { return ended_; }       // DATA: after the terminator.  BDAT: after the last octet of the chunk
    // BDAT: no more chunks follow; settles what waited for the next octet.
    void finish_message(DataSink& sink);
    const DataFacts& facts() const { return facts_; }

private:
    struct Input;                               // one call of feed()
    enum class Mode : uint8_t { idle, data, chunk };
    enum class State : uint8_t {
        line_start,     // after CRLF, or at the very start
        soft_start,     // after a bare LF that became CRLF: a line of the message begins, but no dot is taken off
        text,           // inside a line
        text_cr,        // behind a CR
        blank_cr,       // behind a CR that is the first octet of its line
        dot,            // DATA: behind the dot at the start of a line, which was taken off
        dot_cr,         // DATA: behind that dot and a CR, both withheld
    };

    enum class FirstLine : uint8_t {
        name,           // so far it is the name of a header field, or nothing
        blank,          // so far it is a name and a blank
        header,         // known: a header field, or empty
        body,           // known: neither, an empty line was put before it
    };

    bool can_scan() const;
    bool cr_withheld() const;
    static uint32_t saturated(uint64_t bytes);
    void give(Input& input, std::string_view slice);
    void withhold(std::string_view slice);
    void give_run(Input& input, size_t end);
    uint64_t position(const Input& input, size_t at) const;
    bool first_line_known() const { return first_line_ >= FirstLine::header; }
    void judge_first_line(Input& input, char octet, size_t at);
    void settle_first_line(Input& input, FirstLine what);
    void end_header(uint64_t bytes);
    void bare_cr(Input& input, size_t at);
    void step(Input& input, size_t at);
    void step_at_start(Input& input, size_t at);
    void step_inside(Input& input, size_t at, State after_cr);
    void step_in_header(Input& input, size_t at);
    void match(char octet);
    size_t scan_from(std::string_view octets, size_t at);
    template <bool header, bool stopping>
    size_t scan(std::string_view octets, size_t at);

    Mode mode_ = Mode::idle;
    BareNewline policy_ = BareNewline::reject;
    State state_ = State::line_start;
    uint8_t match_ = 0xff;                      // octets of "Received:" seen at the start of this line; 255: none
    bool ended_ = true;
    FirstLine first_line_ = FirstLine::name;
    uint8_t withheld_bytes_ = 0;
    uint64_t chunk_left_ = 0;
    DataFacts facts_;
    char withheld_[first_line_withheld_max];    // octets of the first line that came in earlier calls
};

}  // namespace postern::proto
