#include "runtime/telemetry/metrics_text.hpp"

#include "runtime/base/death_words.hpp"
#include "runtime/base/last_death.hpp"
#include "runtime/base/sample_name.hpp"
#include "runtime/base/text.hpp"
#include "runtime/telemetry/metrics_page.hpp"
#include "runtime/telemetry/report_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace penstock::telemetry {
namespace {

template <class Enum>
Enum next(Enum value) {
  return static_cast<Enum>(static_cast<int>(value) + 1);
}

void add_stall(metrics_page& p, const session_status& s) {
  p.begin("penstock_stalled_seconds", "gauge",
          "Time without progress, by what the stream waits for; 0 during the first 5 s, and while no progress "
          "is due.");
  for (auto kind = stall_kind::sample; kind <= stall_kind::group; kind = next(kind))
    p.value("waits_for", name_of(kind), s.stalled && s.stalled->kind == kind ? s.stalled->seconds : 0.0);
  p.begin("penstock_stall_info", "gauge", "1 while the stream is stalled; the labels name the worker and the sample that it waits for.");
  if (!s.stalled) return;
  std::string sample = s.stalled->sample;
  for (const worker_status& w : s.workers) {
    if (w.id == s.stalled->worker && sample.empty()) sample = w.current_sample.value_or("");
  }
  p.value({{"waits_for", name_of(s.stalled->kind)},
           {"worker", s.stalled->worker ? std::to_string(*s.stalled->worker) : ""},
           {"sample", sample}},
          1);
}

constexpr std::size_t reason_bytes = 160;  // the most bytes of a label that gives a reason

template <class Number>
std::string text_or_none(const std::optional<Number>& number) {
  return number ? std::to_string(*number) : std::string();
}

/// A sample's name in the form of `penstock_stall_info`.
std::string name_of_sample(std::uint64_t sample, const std::optional<std::string>& path) {
  return path ? printable(*path) : default_sample_name(sample);
}

double unix_seconds(std::chrono::system_clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

/// Returns the last line of the text, which usually says the most.
std::string reason_in(const std::string& words) {
  return shortened(printable(words.substr(words.rfind('\n') + 1)), reason_bytes);
}

constexpr auto word_of_cause = [](const auto& death) { return penstock::name_of(death.cause); };

void add_last_death(metrics_page& p, const metrics_facts& f) {
  const death_report* const d = last_death(f.totals.deaths, word_of_cause);
  p.begin("penstock_last_death_info", "gauge", "1; the labels say which worker died last, how, and why.");
  if (d != nullptr) {
    metric_labels labels{{"worker", std::to_string(d->worker)},
                         {"pid", std::to_string(d->pid)},
                         {"cause", penstock::name_of(d->cause)},
                         {"reason", reason_in(d->reason)},
                         {"signal", d->signal.value_or("")},
                         {"code", text_or_none(d->code)}};
    if (f.status.jobs) {
      labels.emplace_back("job", text_or_none(d->job));
      labels.emplace_back("work", shortened(printable(d->work.value_or("")), reason_bytes));
    } else {
      labels.emplace_back("sample", d->sample ? name_of_sample(*d->sample, d->path) : "");
      labels.emplace_back("index", text_or_none(d->sample));
    }
    p.value(labels, 1);
  }
  p.begin("penstock_last_death_timestamp_seconds", "gauge", "When that worker died, in Unix time.");
  if (d != nullptr) p.value(unix_seconds(d->time));
}

void add_last_owner_death(metrics_page& p, const metrics_facts& f) {
  const owner_death_report* const d = last_death(f.totals.owner_deaths, word_of_cause);
  p.begin("penstock_gpu_owner_last_death_info", "gauge", "1; the labels say how the GPU owner last died, and at which batch.");
  if (d != nullptr)
    p.value({{"pid", std::to_string(d->pid)},
             {"cause", penstock::name_of(d->cause)},
             {"reason", reason_in(d->reason.empty() ? d->last_words : d->reason)},
             {"signal", d->signal.value_or("")},
             {"code", text_or_none(d->code)},
             {"epoch", text_or_none(d->epoch)},
             {"batch", text_or_none(d->sequence)}},
            1);
  p.begin("penstock_gpu_owner_last_death_timestamp_seconds", "gauge", "When that process died, in Unix time.");
  if (d != nullptr) p.value(unix_seconds(d->time));
}

/// Names only the newest samples of each kind, because every name is a time series.
void add_bad_samples(metrics_page& p, const run_report& r) {
  std::set<std::string> named;
  const auto is_news = [&named](const auto& one) {
    return named.size() < samples_named_max && named.insert(one.sample == not_numbered ? one.path.value_or("") : std::to_string(one.sample)).second;
  };
  const auto index_of = [](std::uint64_t sample) { return sample == not_numbered ? std::string() : std::to_string(sample); };
  p.begin("penstock_sample_quarantined_info", "gauge", "1 for each of the last 16 samples that are left out because they kill workers.");
  for (auto q = r.quarantine.rbegin(); q != r.quarantine.rend(); ++q) {
    if (q->lifted || !is_news(*q)) continue;
    p.value({{"sample", name_of_sample(q->sample, q->path)}, {"index", index_of(q->sample)}, {"causes", causes_in_words(q->causes)}}, 1);
  }
  named.clear();
  p.begin("penstock_sample_failed_info", "gauge", "1 for each of the last 16 samples that could not be loaded; a label gives the reason.");
  for (auto s = r.failures.rbegin(); s != r.failures.rend(); ++s) {
    if (!is_news(*s)) continue;
    p.value({{"sample", name_of_sample(s->sample, s->path)},
             {"index", index_of(s->sample)},
             {"reason", shortened(printable(s->error), reason_bytes)}},
            1);
  }
}

void add_workers(metrics_page& p, const metrics_facts& f) {
  // The sacrificial worker always has a place, but while it is not needed, it does not
  // count as a stopped worker.
  std::vector<worker_status> workers = f.status.workers;
  std::erase_if(workers, [](const worker_status& w) { return w.why_stopped == vacancy::not_needed; });
  std::map<std::string, std::uint64_t> by_state;
  for (const worker_status& w : workers) ++by_state[name_of(w.state)];
  p.begin("penstock_workers", "gauge", "Loader workers by state.");
  for (const auto& [state, count] : by_state) p.value("state", state, count);
  p.gauge("penstock_workers_configured", "Loader workers requested by the config.",
          f.totals.workers_configured);
  p.counter("penstock_worker_starts_total", "Worker processes started.", f.totals.workers_started);
  p.counter("penstock_worker_restarts_total", "Worker processes started as replacements.", f.totals.restarts);
  p.begin("penstock_worker_deaths_total", "counter",
          "Workers that died before the session ended, by cause; stopped means killed because it did not stop in time.");
  for (std::size_t i = 0; i < death_causes; ++i)
    p.value("cause", penstock::name_of(static_cast<death_cause>(i)), f.deaths[i]);
  p.begin("penstock_worker_place_restarts_total", "counter", "Restarts of each worker.");
  for (const worker_status& w : workers) p.value("worker", std::to_string(w.id), w.restarts);
  p.begin("penstock_worker_resident_memory_bytes", "gauge", "Resident memory of each worker.");
  for (const worker_status& w : workers) p.value("worker", std::to_string(w.id), w.rss_bytes);
  p.counter("penstock_stale_messages_total", "Late or wrong messages from workers.", f.totals.stale_dropped);
}

/// Groups hosts by name, so that hosts with the same name are one series.
void add_hosts(metrics_page& p, const session_status& s) {
  if (!has_hosts(s)) return;
  p.gauge("penstock_hosts_wait_seconds", "How long the session has waited for a loader host because it has no worker; otherwise 0.",
          s.waits_for_hosts ? s.waits_for_hosts->seconds : 0.0);
  p.begin("penstock_host_up", "gauge", "1 for each loader host that has joined; 0 once it has left or is lost.");
  for (const host_record& h : s.host_records) p.value("host", h.name, h.here ? 1 : 0);
  std::map<std::pair<std::string, std::string>, std::uint64_t> workers;
  std::map<std::string, double> round_trips;
  for (const host_status& h : s.hosts) {
    double& longest = round_trips[h.name];
    longest = std::max(longest, h.round_trip_seconds);
    for (const worker_status& w : s.workers) {
      if (std::ranges::find(h.workers, w.id) != h.workers.end()) ++workers[{h.name, name_of(w.state)}];
    }
  }
  p.begin("penstock_host_workers", "gauge", "Workers of each loader host, by state.");
  for (const auto& [of, count] : workers) p.value({{"host", of.first}, {"state", of.second}}, count);
  p.begin("penstock_host_round_trip_seconds", "gauge", "Time from a ping to the host's answer.");
  for (const auto& [host, seconds] : round_trips) p.value("host", host, seconds);
  p.begin("penstock_host_samples_total", "counter", "Samples received from each loader host; in a pool, jobs.");
  for (const host_record& h : s.host_records) p.value("host", h.name, h.samples);
  p.begin("penstock_host_received_bytes_total", "counter", "Bytes of batches or results received from each loader host.");
  for (const host_record& h : s.host_records) p.value("host", h.name, h.bytes);
  p.begin("penstock_host_cpu_seconds_total", "counter", "Processor time that each loader host and its workers used.");
  for (const host_record& h : s.host_records) p.value("host", h.name, h.cpu_seconds);
  p.begin("penstock_host_losses_total", "counter", "How often each loader host was lost, by cause.");
  for (const host_record& h : s.host_records) {
    for (const auto& [cause, count] : h.losses) p.value({{"host", h.name}, {"cause", cause}}, count);
  }
  p.begin("penstock_host_refused_transfers_total", "counter", "Transfers from each loader host that were discarded, by kind.");
  for (const host_record& h : s.host_records) {
    for (const auto& [kind, count] : {std::pair("damaged", h.refused.damaged), {"wrong_size", h.refused.wrong_size}, {"late", h.refused.late}})
      p.value({{"host", h.name}, {"kind", kind}}, count);
  }
}

void add_owner(metrics_page& p, const metrics_facts& f) {
  p.counter("penstock_gpu_owner_restarts_total", "Processes started to replace the GPU owner.",
            f.totals.owner_restarts);
  p.begin("penstock_gpu_owner_deaths_total", "counter",
          "GPU owner processes that died before the session ended, by cause; stopped means killed because it did not stop in time.");
  for (std::size_t i = 0; i < death_causes; ++i)
    p.value("cause", penstock::name_of(static_cast<death_cause>(i)), f.owner_deaths[i]);
}

void add_stream(metrics_page& p, const metrics_facts& f) {
  p.gauge("penstock_epoch", "The epoch being delivered, counted from 0.", f.status.epoch);
  p.counter("penstock_hedges_total", "Late batches that a second worker also loaded ([loader] hedge).",
            f.status.hedges.started);
  p.counter("penstock_hedges_won_total", "Hedges in which the second worker was faster.", f.status.hedges.won);
  p.counter("penstock_batches_delivered_total", "Batches delivered to the consumer.",
            f.status.batches_delivered);
  p.counter("penstock_samples_delivered_total", "Samples delivered to the consumer.",
            f.status.samples_delivered);
  p.gauge("penstock_samples_expected", "Samples of the whole run; 0 until the dataset is known.",
          f.status.samples_expected);
  p.gauge("penstock_samples_done", "Expected samples that were delivered or left out.",
          f.status.samples_done);
  p.counter("penstock_samples_failed_total", "Samples that could not be loaded.", f.status.failed);
  p.gauge("penstock_samples_quarantined", "Samples left out because they kill workers.",
          f.status.quarantined);
  p.counter("penstock_uploads_total", "Batches copied to the device.", f.totals.uploads);
  p.counter("penstock_uploaded_bytes_total", "Bytes of tensors copied to the device.",
            f.status.bytes_uploaded);
  p.counter("penstock_consumer_wait_seconds_total", "Time that the consumer waited for batches.",
            f.totals.device_waited_seconds);
  p.counter("penstock_slow_sample_batches_total", "Batches with samples that took much longer than usual.", f.limits.slow_batches);
  p.counter("penstock_slow_sample_wait_seconds_total", "Time that the stream waited for such samples, as part of the consumer's waits.",
            f.limits.slow_seconds);
}

void add_pipeline(metrics_page& p, const metrics_facts& f) {
  const pipeline_counts now = count_pipeline(f.under_way);
  p.begin("penstock_batches", "gauge", "Batches in flight, by where they are.");
  p.value("place", "loading", now.loading);
  p.value("place", "loaded", now.loaded);
  p.value("place", "uploading", now.uploading);
  p.value("place", "ready", now.ready);
  p.value("place", "in_use", now.in_use);
  p.begin("penstock_stage_seconds", "histogram", "Time that batches spent in each stage.");
  for (std::size_t i = 0; i < f.stages.size(); ++i) p.histogram("stage", stage_spans()[i].name, f.stages[i]);
}

/// Adds the metrics of what the consumer of a DataLoader receives, under the
/// names that a session uses.
void add_batches(metrics_page& p, const metrics_facts& f) {
  p.gauge("penstock_epoch", "The epoch being delivered, counted from 0.", f.status.epoch);
  p.counter("penstock_batches_delivered_total", "Batches delivered to the consumer.", f.status.batches_delivered);
  p.counter("penstock_samples_delivered_total", "Samples delivered to the consumer.", f.status.samples_delivered);
  p.counter("penstock_samples_failed_total", "Samples that could not be loaded.", f.status.failed);
  p.gauge("penstock_samples_quarantined", "Samples left out because they kill workers.", f.status.quarantined);
  p.counter("penstock_consumer_wait_seconds_total", "Time that the consumer waited for batches.", f.totals.device_waited_seconds);
}

void add_jobs(metrics_page& p, const pool_statistics& jobs) {
  p.counter("penstock_jobs_submitted_total", "Jobs submitted.", jobs.submitted);
  p.begin("penstock_jobs", "gauge", "Jobs that have not ended, by state.");
  p.value("state", "waiting", jobs.waiting);
  p.value("state", "running", jobs.running);
  p.begin("penstock_jobs_ended_total", "counter", "Jobs that ended, by outcome.");
  p.value("outcome", "ok", jobs.ok);
  p.value("outcome", "failed", jobs.failed);
  p.value("outcome", "cancelled", jobs.cancelled);
  p.counter("penstock_jobs_retried_total", "Deaths of workers that were blamed on a job.", jobs.retried);
  p.begin("penstock_job_memory_bytes", "gauge", "Memory that counts towards [jobs] memory.");
  p.value("of", "arguments", jobs.argument_bytes);
  p.value("of", "results", jobs.result_bytes);
  p.begin("penstock_function_jobs", "gauge", "Jobs that have not ended, by function.");
  for (const function_statistics& f : jobs.functions) p.value("function", f.name, f.waiting + f.running);
  p.begin("penstock_function_jobs_ok_total", "counter", "Jobs with a result, by function.");
  for (const function_statistics& f : jobs.functions) p.value("function", f.name, f.ok);
  p.begin("penstock_function_jobs_failed_total", "counter", "Jobs without a result, by function.");
  for (const function_statistics& f : jobs.functions) p.value("function", f.name, f.failed);
}

void add_poisoned_jobs(metrics_page& p, const run_report& r) {
  p.begin("penstock_job_poisoned_info", "gauge", "1 for each of the last 16 jobs that are not tried again because they kill workers.");
  const std::size_t first = r.quarantine.size() - std::min(r.quarantine.size(), samples_named_max);
  for (std::size_t i = r.quarantine.size(); i > first; --i) {
    const quarantine_report& q = r.quarantine[i - 1];
    p.value({{"job", std::to_string(q.sample)}, {"work", shortened(printable(q.path.value_or("")), reason_bytes)}, {"causes", causes_in_words(q.causes)}}, 1);
  }
}

}  // namespace

pipeline_counts count_pipeline(const std::vector<batch_passage>& under_way) {
  pipeline_counts now;
  for (const batch_passage& b : under_way) {
    switch (b.reached()) {
      case batch_stage::leased:
      case batch_stage::begun: ++now.loading; break;
      case batch_stage::loaded:
      case batch_stage::ordered: ++now.loaded; break;  // waits for a free device buffer
      case batch_stage::submitted:
      case batch_stage::copied: ++now.uploading; break;
      case batch_stage::ready: ++now.ready; break;
      case batch_stage::taken: ++now.in_use; break;
      case batch_stage::released: break;
    }
  }
  return now;
}

std::string metrics_text(const metrics_facts& f, const std::string& version) {
  metrics_page p;
  p.begin("penstock_info", "gauge", "Always 1; the label is the running version.");
  p.value("version", version, 1);
  p.begin("penstock_session_info", "gauge",
          "Always 1; the labels are the name for `penstock --session`, and the id that the session will have when it has ended.");
  p.value({{"session", f.status.session}, {"id", f.id}}, 1);
  p.begin("penstock_session_start_timestamp_seconds", "gauge", "When the session started, in Unix time.");
  if (f.status.started) p.value(unix_seconds(*f.status.started));
  p.begin("penstock_session_state", "gauge", "1 for the session's current state.");
  for (auto state = session_state::ok; state <= session_state::stopping; state = next(state))
    p.value("state", name_of(state), f.status.state == state ? 1 : 0);
  add_stall(p, f.status);
  p.begin("penstock_limit_share", "gauge", "Share of the last 10 s during which the stream waited for this.");
  for (std::size_t i = 0; i < limit_count; ++i) p.value("limit", name_of(static_cast<limit>(i)), f.limits.share[i]);
  p.gauge("penstock_worker_core_wait_share", "Share of the workers' time in the last 10 s in which they had no core.",
          f.limits.core_wait);
  if (f.status.jobs) {
    add_jobs(p, *f.status.jobs);
    if (f.status.jobs->of_batches) {
      add_bad_samples(p, f.totals);
      add_batches(p, f);
    } else {
      add_poisoned_jobs(p, f.totals);
    }
    add_workers(p, f);
    add_hosts(p, f.status);
    add_last_death(p, f);
    return std::move(p).text();
  }
  p.begin("penstock_device_ready", "gauge", "1 while the device is open.");
  p.value("kind", f.status.gpu.kind.empty() ? "none" : f.status.gpu.kind,
          f.status.gpu_state == child_state::ready ? 1 : 0);
  add_stream(p, f);
  add_bad_samples(p, f.totals);
  add_workers(p, f);
  add_hosts(p, f.status);
  add_last_death(p, f);
  add_owner(p, f);
  add_last_owner_death(p, f);
  add_pipeline(p, f);
  return std::move(p).text();
}

}  // namespace penstock::telemetry
