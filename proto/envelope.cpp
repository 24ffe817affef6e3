#include "proto/envelope.hpp"

#include <algorithm>

#include "ring/base/check.hpp"

namespace postern::proto {

namespace {

// The stored form; proto/README.md has the bytes.
constexpr char stored_version = 1;
constexpr size_t stored_head_bytes = 18;
constexpr size_t address_bytes_max = 0xffff;        // its length is stored in 16 bits
constexpr size_t arena_bytes_kept = 16u << 10;

char lower(char octet) { return octet >= 'A' && octet <= 'Z' ? static_cast<char>(octet + 32) : octet; }

// Where the domain begins: behind the last '@' (the domain has none, whatever the local part holds).
size_t domain_start(std::string_view address) {
    const size_t at = address.rfind('@');
    return at == std::string_view::npos ? address.size() : at + 1;
}

// FNV-1a over the local part as it is and the domain without case: equal recipients have equal hashes.
uint32_t hash_of(std::string_view address) {
    const size_t domain = domain_start(address);
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < address.size(); ++i) {
        const char octet = i >= domain ? lower(address[i]) : address[i];
        hash = (hash ^ static_cast<unsigned char>(octet)) * 16777619u;
    }
    return hash;
}

bool same_recipient(std::string_view a, std::string_view b) {
    if (a.size() != b.size() || domain_start(a) != domain_start(b)) return false;
    const size_t domain = domain_start(a);
    return a.substr(0, domain) == b.substr(0, domain) &&
           std::equal(a.begin() + domain, a.end(), b.begin() + domain,
                      [](char x, char y) { return lower(x) == lower(y); });
}

template <class Number>
void put(std::string& out, Number number) {
    for (size_t i = 0; i < sizeof number; ++i) out.push_back(static_cast<char>(number >> (8 * i)));
}

template <class Number>
Number get(std::string_view octets, size_t at) {
    Number number = 0;
    for (size_t i = 0; i < sizeof number; ++i)
        number |= static_cast<Number>(static_cast<Number>(static_cast<unsigned char>(octets[at + i])) << (8 * i));
    return number;
}

Error damaged(const char* why) { return Error{0, std::string("envelope: ") + why}; }

}  // namespace

void Envelope::clear() {
    if (capacity() > arena_bytes_kept) {
        std::string().swap(octets_);        // an assignment would keep the capacity
        std::vector<Recipient>().swap(recipients_);
    }
    octets_.clear();
    recipients_.clear();
    sender_bytes_ = 0;
    body = BodyType::seven_bit;
    smtputf8 = false;
    declared_bytes = 0;
}

void Envelope::set_sender(std::string_view address) {
    CHECK_INVARIANT(recipients_.empty() && address.size() <= address_bytes_max);
    octets_.assign(address);
    sender_bytes_ = static_cast<uint32_t>(address.size());
}

void Envelope::add_recipient(std::string_view address) {
    CHECK_INVARIANT(!address.empty() && address.size() <= address_bytes_max);
    octets_.append(address);
    recipients_.push_back({static_cast<uint32_t>(octets_.size()), hash_of(address)});
}

int Envelope::find_recipient(std::string_view address) const {
    const uint32_t hash = hash_of(address);
    for (size_t index = 0; index < recipients_.size(); ++index)
        if (recipients_[index].hash == hash && same_recipient(recipient(index), address))
            return static_cast<int>(index);
    return -1;
}

std::string_view Envelope::recipient(size_t index) const {
    CHECK_INVARIANT(index < recipients_.size());
    const size_t begin = index == 0 ? sender_bytes_ : recipients_[index - 1].end;
    return std::string_view(octets_).substr(begin, recipients_[index].end - begin);
}

size_t Envelope::capacity() const { return octets_.capacity() + recipients_.capacity() * sizeof(Recipient); }

void Envelope::encode(std::string& out) const {
    out.push_back(stored_version);
    out.push_back(static_cast<char>(body));
    out.push_back(smtputf8 ? 1 : 0);
    out.push_back(0);
    put<uint64_t>(out, declared_bytes);
    put<uint32_t>(out, static_cast<uint32_t>(recipients_.size()));
    put<uint16_t>(out, static_cast<uint16_t>(sender_bytes_));
    uint32_t begin = sender_bytes_;
    for (const Recipient& recipient : recipients_) {
        put<uint16_t>(out, static_cast<uint16_t>(recipient.end - begin));
        begin = recipient.end;
    }
    out.append(octets_);
}

Result<Envelope> Envelope::decode(std::string_view octets) {
    if (octets.size() < stored_head_bytes) return fail(damaged("too short"));
    if (octets[0] != stored_version) return fail(damaged("unknown version"));
    const auto body_code = static_cast<unsigned char>(octets[1]);
    const auto flags = static_cast<unsigned char>(octets[2]);
    if (body_code > static_cast<unsigned char>(BodyType::binary_mime)) return fail(damaged("unknown body type"));
    if (flags > 1 || octets[3] != 0) return fail(damaged("unknown flags"));

    const uint64_t count = get<uint32_t>(octets, 12);
    const uint64_t sender_bytes = get<uint16_t>(octets, 16);
    if (count * 2 > octets.size() - stored_head_bytes) return fail(damaged("more recipients than octets"));
    const size_t arena = stored_head_bytes + count * 2;

    Envelope envelope;
    uint64_t end = sender_bytes;
    envelope.recipients_.reserve(count);
    for (size_t index = 0; index < count; ++index) {
        const uint16_t bytes = get<uint16_t>(octets, stored_head_bytes + index * 2);
        if (bytes == 0) return fail(damaged("empty recipient"));
        end += bytes;
        envelope.recipients_.push_back({static_cast<uint32_t>(end), 0});
    }
    if (end != octets.size() - arena) return fail(damaged("lengths do not add up"));

    envelope.body = static_cast<BodyType>(body_code);
    envelope.smtputf8 = flags == 1;
    envelope.declared_bytes = get<uint64_t>(octets, 4);
    envelope.sender_bytes_ = static_cast<uint32_t>(sender_bytes);
    envelope.octets_.assign(octets.substr(arena));
    for (size_t index = 0; index < count; ++index)
        envelope.recipients_[index].hash = hash_of(envelope.recipient(index));
    return envelope;
}

std::string_view domain_of(std::string_view address) { return address.substr(domain_start(address)); }

}  // namespace postern::proto
