// One transaction as a value: what MAIL and RCPT said.  Kept by the session, stored with the message, read by delivery.
//
// All octets live in one arena, so that clear() and reuse cost no allocation.  Addresses are stored without brackets, in
// their canonical form (local part re-quoted only where it must be, domain in lower case); the null sender is "".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ring/base/result.hpp"
#include "ring/base/units.hpp"

namespace postern::proto {

enum class BodyType : uint8_t { seven_bit, eight_bit_mime, binary_mime };

class Envelope {
public:
    void clear();                       // keeps the arena unless it grew beyond 16 KiB
    void set_sender(std::string_view address);      // before any recipient
    void add_recipient(std::string_view address);
    // Index of an equal recipient (domain without case, local part exactly), or -1.
    int find_recipient(std::string_view address) const;

    std::string_view sender() const { return std::string_view(octets_).substr(0, sender_bytes_); }
    size_t recipient_count() const { return recipients_.size(); }
    std::string_view recipient(size_t index) const;

    BodyType body = BodyType::seven_bit;
    bool smtputf8 = false;
    uint64_t declared_bytes = 0;        // SIZE=, 0 when absent

    size_t capacity() const;            // octets of heap held

    // The stored form, versioned (proto/README.md has the bytes).  decode() refuses what encode() cannot have written.
    void encode(std::string& out) const;
    static Result<Envelope> decode(std::string_view octets);

private:
    struct Recipient {
        uint32_t end;                   // in octets_
        uint32_t hash;                  // so that looking for a duplicate rarely compares octets
    };
    std::string octets_;                // sender, then recipients, back to back
    uint32_t sender_bytes_ = 0;
    std::vector<Recipient> recipients_;
};

// The domain of an address as stored ("" for the null sender and for bare Postmaster).
std::string_view domain_of(std::string_view address);

}  // namespace postern::proto
