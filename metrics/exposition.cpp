#include "metrics/exposition.hpp"

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "metrics/buckets.hpp"
#include "ring/base/check.hpp"

namespace postern::metrics {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

struct Source {
    const ExpositionNames& names;
    const std::vector<const ShardMetrics*>& shards;
    bool ready = false;
    int64_t wall_seconds = 0;

    uint64_t sum(auto&& value) const {
        uint64_t total = 0;
        for (const ShardMetrics* shard : shards) total += value(*shard).value();
        return total;
    }
    // For flags that hold for the process only if they hold for every shard, and for facts that all shards see alike.
    uint64_t least(auto&& value) const {
        uint64_t least = shards.empty() ? 0 : UINT64_MAX;
        for (const ShardMetrics* shard : shards) least = std::min(least, value(*shard).value());
        return least;
    }
};

using Labels = std::vector<std::pair<const char*, std::string>>;

// The samples of one family.
class Samples {
public:
    explicit Samples(MetricFamily& family) : family_(family) {}

    void value(double number, const Labels& labels = {}) {
        ClientMetric& metric = add(labels);
        (family_.type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = number;
    }
    void value(uint64_t number, const Labels& labels = {}) { value(static_cast<double>(number), labels); }

    void histogram(const BucketSum& sum, const Bounds& bounds, const Labels& labels = {}) {
        ClientMetric::Histogram& histogram = add(labels).histogram;
        for (const Bounds::Bound& bound : bounds.list)
            histogram.bucket.push_back({sum.count_up_to(bound.recorded), bound.shown});
        histogram.sample_count = sum.count();
        histogram.sample_sum = static_cast<double>(sum.sum()) * bounds.unit;
    }

private:
    ClientMetric& add(const Labels& labels) {
        ClientMetric& metric = family_.metric.emplace_back();
        for (const auto& [name, value] : labels) metric.label.push_back({name, value});
        return metric;
    }
    MetricFamily& family_;
};

struct Family {
    const char* name;
    MetricType type;
    const char* help;
    void (*collect)(const Source&, Samples&);
};

constexpr const char* refusal_names[] = {"connections", "recipients", "relay", "policy", "size", "space", "local_error", "syntax",
                                         "sequence", "too_many_errors", "timeout", "bare_newline", "loop", "shutting_down", "unsent",
                                         "other"};
static_assert(std::size(refusal_names) == static_cast<size_t>(Refusal::count));
constexpr const char* outcome_names[] = {"delivered", "deferred", "failed", "expired"};
static_assert(std::size(outcome_names) == static_cast<size_t>(DeliveryOutcome::count));
constexpr const char* class_names[] = {"2xx", "3xx", "4xx", "5xx"};
static_assert(std::size(class_names) == class_slots);
constexpr const char* sink_names[] = {"direct", "buffered", "none"};

template <Counter ShardMetrics::*member>
void counter_of(const Source& source, Samples& samples) {
    samples.value(source.sum([](const ShardMetrics& shard) -> const Counter& { return shard.*member; }));
}
template <Counter ShardStatus::*member>
void status_of(const Source& source, Samples& samples) {
    samples.value(source.sum([](const ShardMetrics& shard) -> const Counter& { return shard.status.*member; }));
}
template <Counter ShardStatus::*member>
void least_status_of(const Source& source, Samples& samples) {
    samples.value(source.least([](const ShardMetrics& shard) -> const Counter& { return shard.status.*member; }));
}
template <Histogram ShardMetrics::*member, const Bounds& bounds>
void histogram_of(const Source& source, Samples& samples) {
    BucketSum sum;
    for (const ShardMetrics* shard : source.shards) sum.add(shard->*member);
    samples.histogram(sum, bounds);
}
template <Counter RouteMetrics::*member>
void route_counter_of(const Source& source, Samples& samples) {
    for (size_t route = 0; route < source.names.routes.size(); ++route)
        samples.value(source.sum([&](const ShardMetrics& shard) -> const Counter& { return shard.route(route).*member; }),
                      {{"route", source.names.routes[route]}});
}

void build_info(const Source& source, Samples& samples) {
    samples.value(1.0, {{"version", source.names.version}, {"build", source.names.build}, {"features", source.names.kernel_features}});
}
void ready(const Source& source, Samples& samples) { samples.value(source.ready ? 1.0 : 0.0); }
void shards(const Source& source, Samples& samples) { samples.value(uint64_t{source.shards.size()}); }

void commands(const Source& source, Samples& samples) {
    for (size_t verb = 0; verb < source.names.verbs.size(); ++verb)
        samples.value(source.sum([&](const ShardMetrics& shard) -> const Counter& { return shard.commands[verb]; }),
                      {{"verb", source.names.verbs[verb]}});
}
void replies(const Source& source, Samples& samples) {
    for (size_t stage = 0; stage < source.names.stages.size(); ++stage)
        for (size_t code_class = 0; code_class < class_slots; ++code_class)
            samples.value(source.sum([&](const ShardMetrics& shard) -> const Counter& { return shard.replies[stage][code_class]; }),
                          {{"stage", source.names.stages[stage]}, {"class", class_names[code_class]}});
}
void refusals(const Source& source, Samples& samples) {
    for (size_t reason = 0; reason < std::size(refusal_names); ++reason)
        samples.value(source.sum([&](const ShardMetrics& shard) -> const Counter& { return shard.refusals[reason]; }),
                      {{"reason", refusal_names[reason]}});
}
void reads(const Source& source, Samples& samples) {
    samples.value(source.sum([](const ShardMetrics& shard) -> const Counter& { return shard.read_memory_bytes; }), {{"from", "memory"}});
    samples.value(source.sum([](const ShardMetrics& shard) -> const Counter& { return shard.read_disk_bytes; }), {{"from", "disk"}});
}
void segments(const Source& source, Samples& samples) {
    constexpr std::pair<const char*, Counter ShardStatus::*> states[] = {{"ready", &ShardStatus::spool_segments_ready},
                                                                         {"active", &ShardStatus::spool_segments_active},
                                                                         {"sealed", &ShardStatus::spool_segments_sealed},
                                                                         {"failed", &ShardStatus::spool_segments_failed}};
    for (const auto& [name, member] : states)
        samples.value(source.sum([&](const ShardMetrics& shard) -> const Counter& { return shard.status.*member; }), {{"state", name}});
}
void oldest_age(const Source& source, Samples& samples) {
    uint64_t oldest = 0;
    for (const ShardMetrics* shard : source.shards)
        if (const uint64_t received = shard->status.spool_oldest_received_seconds.value(); received && (!oldest || received < oldest))
            oldest = received;
    const int64_t age = oldest ? source.wall_seconds - static_cast<int64_t>(oldest) : 0;
    samples.value(static_cast<double>(std::max<int64_t>(age, 0)));      // the clock may have been set back
}
void sinks(const Source& source, Samples& samples) {
    for (size_t sink = 0; sink < std::size(sink_names); ++sink)
        samples.value(static_cast<uint64_t>(std::count_if(source.shards.begin(), source.shards.end(), [&](const ShardMetrics* shard) {
                          return shard->status.spool_sink.value() == sink;
                      })), {{"sink", sink_names[sink]}});
}
void sends(const Source& source, Samples& samples) {
    samples.value(source.sum([](const ShardMetrics& shard) -> const Counter& { return shard.status.direct_sends; }), {{"path", "direct"}});
    samples.value(source.sum([](const ShardMetrics& shard) -> const Counter& { return shard.status.ring_sends; }), {{"path", "ring"}});
}
void route_recipients(const Source& source, Samples& samples) {
    for (size_t route = 0; route < source.names.routes.size(); ++route)
        for (size_t outcome = 0; outcome < std::size(outcome_names); ++outcome)
            samples.value(source.sum([&](const ShardMetrics& shard) -> const Counter& { return shard.route(route).recipients[outcome]; }),
                          {{"route", source.names.routes[route]}, {"outcome", outcome_names[outcome]}});
}
void route_queue_time(const Source& source, Samples& samples) {
    for (size_t route = 0; route < source.names.routes.size(); ++route) {
        BucketSum sum;
        for (const ShardMetrics* shard : source.shards) sum.add(shard->route(route).queue_time_ms);
        samples.histogram(sum, long_times_ms, {{"route", source.names.routes[route]}});
    }
}

constexpr MetricType counter = MetricType::Counter;
constexpr MetricType gauge = MetricType::Gauge;
constexpr MetricType histogram = MetricType::Histogram;

const Family families[] = {
    {"postern_build_info", gauge, "Version, build type and kernel features found; always 1.", build_info},
    {"postern_ready", gauge, "1 while the gateway takes mail in, as /readyz says.", ready},
    {"postern_shards", gauge, "Shards that run.", shards},

    {"postern_connections_accepted_total", counter, "Client connections accepted.", counter_of<&ShardMetrics::connections_accepted>},
    {"postern_connections_handed_over_total", counter, "Client connections handed to a less loaded shard.", counter_of<&ShardMetrics::connections_handed_over>},
    {"postern_connections_open", gauge, "Client connections open now.", status_of<&ShardStatus::connections_open>},
    {"postern_sessions_in_data", gauge, "Sessions that are inside DATA or BDAT now.", status_of<&ShardStatus::sessions_in_data>},
    {"postern_connection_seconds", histogram, "How long client connections lasted.", histogram_of<&ShardMetrics::connection_ms, long_times_ms>},
    {"postern_accept_errors_total", counter, "Failures to accept, such as no descriptors left.", status_of<&ShardStatus::accept_errors>},

    {"postern_commands_total", counter, "SMTP commands by verb.", commands},
    {"postern_replies_total", counter, "SMTP replies by the stage they were given at and the class of their code.", replies},
    {"postern_refusals_total", counter, "Clients, recipients and messages refused, by reason.", refusals},

    {"postern_messages_received_total", counter, "Messages received whole.", counter_of<&ShardMetrics::messages_in>},
    {"postern_received_bytes_total", counter, "Size of the messages received.", counter_of<&ShardMetrics::bytes_in>},
    {"postern_recipients_received_total", counter, "Recipients of the messages received.", counter_of<&ShardMetrics::recipients_in>},
    {"postern_message_size_bytes", histogram, "Size of single messages received.", histogram_of<&ShardMetrics::message_bytes, sizes>},

    {"postern_commit_wait_seconds", histogram, "From the end of a message's data until it was durable.", histogram_of<&ShardMetrics::commit_wait_us, short_times_us>},
    {"postern_batch_messages", histogram, "Messages in one committed batch.", histogram_of<&ShardMetrics::batch_messages, counts>},
    {"postern_batch_size_bytes", histogram, "Size of one committed batch.", histogram_of<&ShardMetrics::batch_bytes, sizes>},
    {"postern_sync_seconds", histogram, "How long the durable write of a batch took.", histogram_of<&ShardMetrics::sync_us, short_times_us>},
    {"postern_commits_failed_total", counter, "Batches that could not be made durable; each seals its segment.", counter_of<&ShardMetrics::commits_failed>},
    {"postern_recipient_results_total", counter, "Recipient results recorded in the spool.", counter_of<&ShardMetrics::results>},
    {"postern_fragments_total", counter, "Pieces of unfinished messages written to the spool ahead.", counter_of<&ShardMetrics::fragments>},
    {"postern_fragment_bytes_total", counter, "Size of these pieces.", counter_of<&ShardMetrics::fragment_bytes>},

    {"postern_spool_healthy", gauge, "1 while commits succeed on every shard.", least_status_of<&ShardStatus::spool_healthy>},
    {"postern_spool_messages", gauge, "Messages that wait for delivery.", status_of<&ShardStatus::spool_messages>},
    {"postern_spool_messages_held", gauge, "Messages on hold: a recipient failed for good.", status_of<&ShardStatus::spool_messages_held>},
    {"postern_spool_allocated_bytes", gauge, "Disk space that the spool's segments take.", status_of<&ShardStatus::spool_bytes_allocated>},
    {"postern_spool_available_bytes", gauge, "Space left on the spool's file system.", least_status_of<&ShardStatus::spool_bytes_available>},
    {"postern_spool_segments", gauge, "Segments by state: ready, active, sealed, failed.", segments},
    {"postern_spool_segments_recycled_total", counter, "Segments whose messages were all complete and that were made ready again.", counter_of<&ShardMetrics::segments_recycled>},
    {"postern_spool_unfinished_bytes", gauge, "Memory of messages being received.", status_of<&ShardStatus::spool_unfinished_bytes>},
    {"postern_spool_oldest_message_age_seconds", gauge, "Age of the oldest message that waits; 0 when none does.", oldest_age},
    {"postern_spool_damaged_frames_total", counter, "Frames found damaged, at recovery or on reading.", counter_of<&ShardMetrics::damaged_frames>},
    {"postern_spool_read_bytes_total", counter, "Octets read for delivery, from batches in memory or from disk.", reads},
    {"postern_spool_sink_shards", gauge, "Shards by the way their commits reach the disk.", sinks},

    {"postern_route_recipients_total", counter, "Results of recipients by route and outcome.", route_recipients},
    {"postern_route_messages_sent_total", counter, "Messages handed on.", route_counter_of<&RouteMetrics::messages_out>},
    {"postern_route_sent_bytes_total", counter, "Size of the messages handed on.", route_counter_of<&RouteMetrics::bytes_out>},
    {"postern_route_attempts_total", counter, "Attempts to hand a message on.", route_counter_of<&RouteMetrics::attempts>},
    {"postern_route_retries_total", counter, "Attempts of messages that had been deferred.", route_counter_of<&RouteMetrics::retries>},
    {"postern_route_connections_opened_total", counter, "Connections to the next hop made.", route_counter_of<&RouteMetrics::connections_opened>},
    {"postern_route_connections_failed_total", counter, "Connections to the next hop that failed or were lost.", route_counter_of<&RouteMetrics::connections_failed>},
    {"postern_route_connections_open", gauge, "Connections to the next hop open now.", route_counter_of<&RouteMetrics::connections_open>},
    {"postern_route_queued_messages", gauge, "Messages that wait for a connection.", route_counter_of<&RouteMetrics::queued>},
    {"postern_route_deferred_messages", gauge, "Messages that wait for their next attempt.", route_counter_of<&RouteMetrics::deferred>},
    {"postern_route_queue_time_seconds", histogram, "From received until delivered.", route_queue_time},

    {"postern_loop_turns_total", counter, "Turns of the event loops.", status_of<&ShardStatus::loop_turns>},
    {"postern_ring_enters_total", counter, "Calls of io_uring_enter.", status_of<&ShardStatus::ring_enters>},
    {"postern_ring_completions_total", counter, "Completions reaped; over the enters: completions per enter.", status_of<&ShardStatus::ring_completions>},
    {"postern_ring_overflows_total", counter, "Times that the completion queue overflowed.", status_of<&ShardStatus::ring_overflows>},
    {"postern_ring_submission_full_total", counter, "Times that the submission queue was full.", status_of<&ShardStatus::ring_submission_full>},
    {"postern_ring_stale_completions_total", counter, "Completions of connections that were gone.", status_of<&ShardStatus::stale_completions>},
    {"postern_ring_memory_registered", gauge, "1 when the memory of every shard is registered with the kernel.", least_status_of<&ShardStatus::memory_registered>},
    {"postern_receive_starved_total", counter, "Receives that found no free buffer (ENOBUFS).", status_of<&ShardStatus::receive_starved>},
    {"postern_receive_starved_connections", gauge, "Connections that wait for a free buffer now.", status_of<&ShardStatus::receive_starved_now>},
    {"postern_receive_buffers_free", gauge, "Receive buffers free now.", status_of<&ShardStatus::free_buffers>},
    {"postern_sends_total", counter, "Sends by path: directly, or through the ring.", sends},
    {"postern_short_sends_total", counter, "Sends that took only a part.", status_of<&ShardStatus::short_sends>},

    {"postern_log_lines_dropped_total", counter, "Log lines dropped because the log was not written fast enough.", status_of<&ShardStatus::log_lines_dropped>},
};

const char* type_text(MetricType type) {
    return type == counter ? "counter" : type == gauge ? "gauge" : "histogram";
}

}  // namespace

struct Exposition::Impl : prometheus::Collectable {
    ExpositionNames names;
    std::vector<const ShardMetrics*> shards;
    std::function<bool()> ready;
    std::function<int64_t()> wall_seconds;

    std::vector<MetricFamily> Collect() const override {
        const Source source{names, shards, ready(), wall_seconds()};
        std::vector<MetricFamily> collected;
        collected.reserve(std::size(families));
        for (const Family& family : families) {
            MetricFamily& into = collected.emplace_back(MetricFamily{family.name, family.help, family.type, {}});
            Samples samples(into);
            family.collect(source, samples);
        }
        return collected;
    }
};

Exposition::Exposition(ExpositionNames names, std::vector<const ShardMetrics*> shards, std::function<bool()> ready,
                       std::function<int64_t()> wall_seconds)
    : impl_(std::make_unique<Impl>()) {
    CHECK_INVARIANT(names.verbs.size() <= verb_slots && names.stages.size() <= stage_slots);
    for (const ShardMetrics* shard : shards) CHECK_INVARIANT(shard->route_count() == names.routes.size());
    impl_->names = std::move(names);
    impl_->shards = std::move(shards);
    impl_->ready = std::move(ready);
    impl_->wall_seconds = std::move(wall_seconds);
}

Exposition::~Exposition() = default;

std::string Exposition::text() const {
    std::ostringstream out;
    prometheus::TextSerializer().Serialize(out, impl_->Collect());
    return std::move(out).str();
}

std::vector<MetricDescription> described_metrics() {
    std::vector<MetricDescription> described;
    for (const Family& family : families) described.push_back({family.name, type_text(family.type), family.help});
    return described;
}

}  // namespace postern::metrics
