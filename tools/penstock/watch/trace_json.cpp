#include "tools/penstock/watch/trace_json.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <limits>

namespace penstock::cli {
namespace {

using json = nlohmann::ordered_json;

// Nanoseconds: the width of instantaneous events, so that arrows can attach to them.
constexpr std::int64_t moment = 100;

// Tracks, in the order in which a batch passes them. Workers are between scheduler and owner.
enum track : int { scheduler = 1, first_worker = 10, owner = 100'000, copy_stream, conversion, consumer };

class builder {
 public:
  builder(std::int64_t zero, std::uint64_t pid) : zero_(zero), pid_(pid) {}

  void name_process(const std::string& session) {
    events_.push_back(
        {{"ph", "M"}, {"pid", pid_}, {"name", "process_name"}, {"args", {{"name", "penstock " + session}}}});
  }
  void name_track(int tid, const std::string& name) {
    if (!std::exchange(named_[tid], true)) {
      events_.push_back(
          {{"ph", "M"}, {"pid", pid_}, {"tid", tid}, {"name", "thread_name"}, {"args", {{"name", name}}}});
      events_.push_back({{"ph", "M"},
                         {"pid", pid_},
                         {"tid", tid},
                         {"name", "thread_sort_index"},
                         {"args", {{"sort_index", tid}}}});
    }
  }
  /// Adds a span to a track, after the existing ones. Returns where the span begins.
  std::int64_t span(int tid, const std::string& name, std::int64_t from, std::int64_t to, json args) {
    std::int64_t& free = free_from_[tid];
    from = std::max(from, free);
    to = std::max(to, from + moment);
    free = to;
    events_.push_back({{"ph", "X"},
                       {"pid", pid_},
                       {"tid", tid},
                       {"ts", us(from)},
                       {"dur", static_cast<double>(to - from) / 1000.0},
                       {"name", name},
                       {"args", std::move(args)}});
    return from;
  }
  /// The batch's arrow: start, step, end.
  void flow(const char* phase, int tid, std::int64_t at, std::uint64_t id) {
    json e{{"ph", phase},      {"pid", pid_},    {"tid", tid},     {"ts", us(at)},
           {"id", unique(id)}, {"cat", "batch"}, {"name", "batch"}};
    if (phase[0] == 'f') e["bp"] = "e";
    events_.push_back(std::move(e));
  }
  /// Adds a waiting span; these may overlap.
  void wait(const char* what, std::uint64_t id, std::int64_t from, std::int64_t to) {
    if (from == 0 || to <= from) return;
    for (const bool begin : {true, false}) {
      events_.push_back({{"ph", begin ? "b" : "e"},
                         {"pid", pid_},
                         {"tid", scheduler},
                         {"ts", us(begin ? from : to)},
                         {"id", unique(id)},
                         {"cat", what},
                         {"name", what}});
    }
  }
  void instant(int tid, std::int64_t at, const std::string& name, const std::string& text) {
    events_.push_back({{"ph", "i"},
                       {"pid", pid_},
                       {"tid", tid},
                       {"ts", us(at)},
                       {"s", "t"},
                       {"name", name},
                       {"args", {{"what", text}}}});
  }
  [[nodiscard]] json take() && { return std::move(events_); }

 private:
  [[nodiscard]] double us(std::int64_t at) const { return static_cast<double>(at - zero_) / 1000.0; }

  /// Unique across all sessions. Programs read numbers of 53 bits.
  [[nodiscard]] std::uint64_t unique(std::uint64_t id) const {
    return pid_ << 40U | (id & ((std::uint64_t{1} << 40U) - 1));
  }

  std::int64_t zero_;
  std::uint64_t pid_;
  json events_ = json::array();
  std::map<int, std::int64_t> free_from_;
  std::map<int, bool> named_;
};

struct traced_step {
  int tid;
  std::string name;
  std::int64_t from;
  std::int64_t to;
  std::uint64_t batch;  // an index
  std::size_t rank;     // within the batch's steps
};

/// The spans of a batch whose timestamps are known.
std::vector<traced_step> steps_of(const traced_batch& b, std::uint64_t index) {
  const std::string name = fmt::format("batch {}.{}", b.epoch, b.sequence);
  std::vector<traced_step> steps;
  const auto add = [&](int tid, const char* what, std::int64_t from, std::int64_t to) {
    if (from == 0 || to < from) return;
    steps.push_back({tid, fmt::format("{} {}", what, name), from, to, index, steps.size()});
  };
  add(scheduler, "lease", b.leased, b.leased);
  add(first_worker + static_cast<int>(b.worker), "load", std::max(b.begun, b.leased), b.loaded);
  add(owner, "submit", b.submitted, b.submitted);
  add(copy_stream, "copy", b.submitted, b.copied);
  add(conversion, "convert", b.copied, b.ready);
  add(consumer, "use", b.taken, b.released);
  return steps;
}

}  // namespace

std::optional<traced_batch> traced_batch_of(const json& p) {
  traced_batch b;
  const auto at = p.find("at");
  if (at == p.end() || !at->is_array() || at->size() != 9) return std::nullopt;
  b.number = p.value("number", std::uint64_t{0});
  b.epoch = p.value("epoch", std::uint64_t{0});
  b.sequence = p.value("seq", std::uint64_t{0});
  b.worker = p.value("worker", std::uint32_t{0});
  b.incarnation = p.value("incarnation", std::uint32_t{0});
  b.samples = p.value("samples", std::uint32_t{0});
  const std::array stamps{&b.leased, &b.begun, &b.loaded, &b.ordered, &b.submitted,
                          &b.copied, &b.ready, &b.taken,  &b.released};
  for (std::size_t i = 0; i < stamps.size(); ++i) *stamps[i] = at->at(i).get<std::int64_t>();
  return b;
}

namespace {

/// The events of one session.
json events_of(traced_session session, std::int64_t zero, std::uint64_t pid) {
  auto& [name, batches, events] = session;
  std::ranges::sort(batches, {}, &traced_batch::leased);
  builder trace(zero, pid);
  trace.name_process(name);
  trace.name_track(scheduler, "scheduler");
  trace.name_track(owner, "gpu owner");
  trace.name_track(copy_stream, "copy stream");
  trace.name_track(conversion, "conversion");
  trace.name_track(consumer, "consumer");

  std::vector<traced_step> steps;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    trace.name_track(first_worker + static_cast<int>(batches[i].worker),
                     fmt::format("worker/{}", batches[i].worker));
    for (traced_step& s : steps_of(batches[i], i)) steps.push_back(std::move(s));
  }
  // Fill the tracks in time order, so that spans move as little as possible.
  std::ranges::stable_sort(steps, {}, &traced_step::from);
  std::vector<std::vector<std::pair<std::size_t, std::pair<int, std::int64_t>>>> path(batches.size());
  std::vector<std::int64_t> reached(batches.size());
  for (const traced_step& s : steps) {
    const traced_batch& b = batches[s.batch];
    // A step must not begin before the batch's previous step, which may have been moved.
    std::int64_t& last = reached[s.batch];
    const std::int64_t from = trace.span(
        s.tid, s.name, std::max(s.from, last), s.to,
        {{"epoch", b.epoch}, {"seq", b.sequence}, {"samples", b.samples}, {"incarnation", b.incarnation}});
    last = from;
    path[s.batch].push_back({s.rank, {s.tid, from}});
  }
  for (std::size_t i = 0; i < batches.size(); ++i) {
    auto& way = path[i];
    std::ranges::sort(way);
    for (std::size_t k = 0; k < way.size(); ++k) {
      trace.flow(k == 0                ? "s"
                 : k + 1 == way.size() ? "f"
                                       : "t",
                 way[k].second.first, way[k].second.second, batches[i].number);
    }
    trace.wait("waits for its turn", batches[i].number, batches[i].loaded, batches[i].ordered);
    trace.wait("waits for a buffer", batches[i].number, batches[i].ordered, batches[i].submitted);
    trace.wait("waits for the consumer", batches[i].number, batches[i].ready, batches[i].taken);
  }
  for (const traced_event& e : events) {
    const int tid = e.worker ? first_worker + static_cast<int>(*e.worker) : static_cast<int>(scheduler);
    if (e.worker) trace.name_track(tid, fmt::format("worker/{}", *e.worker));
    trace.instant(tid, e.at, e.kind, e.text);
  }
  return std::move(trace).take();
}

}  // namespace

json chrome_trace(std::vector<traced_session> sessions) {
  std::int64_t zero = std::numeric_limits<std::int64_t>::max();
  for (const traced_session& s : sessions) {
    for (const traced_batch& b : s.batches) zero = std::min(zero, b.leased);
    for (const traced_event& e : s.events) zero = std::min(zero, e.at);
  }
  json all = json::array();
  std::uint64_t pid = 0;
  for (traced_session& s : sessions) {
    for (json& e : events_of(std::move(s), zero, ++pid)) all.push_back(std::move(e));
  }
  return {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(all)}};
}

}  // namespace penstock::cli
