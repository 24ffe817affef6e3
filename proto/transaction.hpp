// One mail from MAIL to its end, and how far it has come.  Owned by ServerSession, apart from the session's own state.
#pragma once

#include <cstdint>
#include <string>

#include "proto/envelope.hpp"
#include "proto/reply.hpp"

namespace postern::proto {

struct Transaction {
    Envelope envelope;
    std::string candidate;              // the recipient being judged, canonical
    std::string kept_enhanced;          // of a refusal by the owner that is said only behind the chunk
    std::string kept_text;
    uint64_t chunks = 0;                // BDAT commands so far
    uint32_t accepted = 0;              // RCPT commands answered with 250, repeated ones included
    uint32_t refused = 0;               // RCPT commands answered otherwise
    bool open = false;                  // MAIL was accepted
    bool owner_waits = false;           // the owner must hear of its end: on_data_end() or on_abandoned()
    bool storing = false;               // the owner takes slices
    bool chunking = false;              // a BDAT came: only BDAT goes on
    bool failed = false;                // a BDAT was refused: only RSET, EHLO or a LAST ends it

    // Ready for the next mail; what it holds of the heap stays.
    void clear() {
        envelope.clear();
        candidate.clear();
        chunks = 0;
        accepted = refused = 0;
        open = owner_waits = storing = chunking = failed = false;
    }
    // The owner's texts live only during its call.
    Reply keep(const Reply& reply) {
        kept_enhanced.assign(reply.enhanced);
        kept_text.assign(reply.text);
        return {reply.code, kept_enhanced, kept_text};
    }
    size_t capacity() const {
        return envelope.capacity() + candidate.capacity() + kept_enhanced.capacity() + kept_text.capacity();
    }
};

}  // namespace postern::proto
