// DataFramer: the one framer of message data (P3).  DATA and BDAT, kept and discarded data, all go through it.
//
// DATA: only CRLF.CRLF ends the data, the CRLF of the DATA command being the first; one leading dot of a line is removed.
// BDAT: exactly the announced octets, nothing removed.  In both the same facts are noted while the octets pass, at a
// cost per 64-octet block, not per line.
// Output: slices of the input (or of short literals), in order, valid as long as the input.  Any split of the input gives
// the same octets and the same facts.
#pragma once

#include <cstdint>
#include <string_view>

namespace postern::proto {

enum class BareNewline : uint8_t { reject, normalize };     // normalize: LF and lone CR are rewritten, see DataFacts

struct DataFacts {
    uint64_t bytes = 0;                 // unstuffed octets given out
    uint32_t received_fields = 0;       // "Received:" at line starts of the header, any case
    uint32_t header_bytes = 0;          // up to and with the blank line (saturates at 4 GiB)
    bool header_ended = false;
    bool bare_cr = false;               // CR not before LF
    bool bare_lf = false;               // LF not after CR
    bool nul_in_header = false;
    bool eight_bit = false;             // an octet above 127
    bool dot_line = false;              // a line of the unstuffed message begins with '.': output must be stuffed
    bool starts_with_blank = false;     // first octet SP or TAB: would continue our Received field
    bool ends_with_crlf = true;         // also of an empty message
};

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
    bool ended() const;                         // DATA: after the terminator.  BDAT: after the last octet of the chunk
    // BDAT: no more chunks follow; settles what waited for the next octet (a CR, in normalize).
    void finish_message(DataSink& sink);
    // The octets fed so far end inside a possible terminator or line: used to decide on a quick ACK.
    const DataFacts& facts() const { return facts_; }

private:
    // proto/framer.cpp has the state's meaning.
    enum class Mode : uint8_t { idle, data, chunk };
    Mode mode_ = Mode::idle;
    BareNewline policy_ = BareNewline::reject;
    uint8_t state_ = 0;
    bool ended_ = true;
    uint64_t chunk_left_ = 0;
    uint32_t header_match_ = 0;
    DataFacts facts_;
};

}  // namespace postern::proto
