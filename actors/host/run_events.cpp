#include "actors/host/run_events.hpp"

#include "actors/supervisor/death_record.hpp"
#include "runtime/base/batch_work.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/death_words.hpp"
#include "runtime/base/memory_words.hpp"
#include "runtime/base/sample_name.hpp"
#include "runtime/base/units.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace penstock::host {
namespace {

constexpr std::size_t samples_listed = 1024;  // of a lost batch

event event_of_lost(event_kind kind, const scheduler::lost_sample& lost, std::string text) {
  event e = event_of(kind, std::move(text));
  e.sample = lost.sample;
  if (!lost.name.empty()) e.path = lost.name;
  e.epoch = lost.epoch;
  e.sequence = lost.sequence;
  return e;
}

event event_of_worker(event_kind kind, const worker_status& w, std::string text) {
  event e = event_of(kind, std::move(text));
  e.worker = w.id;
  e.incarnation = w.incarnation;
  e.pid = w.pid;
  return e;
}

std::string last_line(const std::string& text) {
  return text.substr(text.rfind('\n') + 1);  // npos wraps to 0: the whole text
}

}  // namespace

event event_of(event_kind kind, std::string text) {
  event e;
  e.time = std::chrono::system_clock::now();
  e.kind = kind;
  e.text = std::move(text);
  return e;
}

event event_of_host(event_kind kind, const std::string& host, const std::string& text) {
  event e = event_of(kind, text);
  if (!host.empty()) e.host = host;
  return e;
}

event event_of(const gpu_owner::attached_partition& what) {
  event e = event_of(event_kind::memory_attached,
                     fmt::format("the device registered the slots of worker {} in {}: {}{}", what.partition,
                                 duration_for_people(what.took), bytes_for_people(what.bytes),
                                 what.pinned ? "" : ", not page-locked, so copies from there are slower"));
  e.worker = what.partition;
  return e;
}

event event_of(const death_report& d, work_kind kind) {
  event e = event_of(event_kind::worker_died, supervisor::death_text(d, kind));
  e.time = d.time;
  e.worker = d.worker;
  e.incarnation = d.incarnation;
  if (d.pid > 0) e.pid = d.pid;
  e.sample = d.sample;
  e.path = d.path;
  e.epoch = d.epoch;
  e.sequence = d.sequence;
  e.death = std::make_shared<const death_report>(d);
  return e;
}

event event_of(const owner_death_report& d) {
  std::string text = fmt::format("the GPU owner{} {}", d.pid > 0 ? fmt::format(" (pid {})", d.pid) : "", supervisor::end_text(d));
  if (d.sequence)
    text += fmt::format(", at batch {} of epoch {}", *d.sequence, d.epoch.value_or(0));
  if (!d.last_words.empty()) text += ": " + last_line(d.last_words);
  event e = event_of(event_kind::device_lost, std::move(text));
  e.owner_death = std::make_shared<const owner_death_report>(d);
  e.time = d.time;
  if (d.pid > 0) e.pid = d.pid;
  e.epoch = d.epoch;
  e.sequence = d.sequence;
  return e;
}

event event_of_failed(const scheduler::lost_sample& lost) {
  return event_of_lost(event_kind::sample_failed, lost,
                       fmt::format("{} failed: {}", sample_for_people(lost.sample, lost.name), lost.reason));
}

event event_of_quarantined(const scheduler::lost_sample& lost) {
  return event_of_lost(
      event_kind::sample_quarantined, lost,
      fmt::format("{} is quarantined: {} ({})", sample_for_people(lost.sample, lost.name),
                  deaths_over_work("it", lost.causes, lost.attempts), causes_in_words(lost.causes)));
}

std::string text_of_quarantined(const std::string& name, const scheduler::lost_sample& lost) {
  return fmt::format("{} is quarantined: {} ({})", name, counted(lost.attempts, "attempt failed", "attempts failed"), causes_in_words(lost.causes));
}

scheduler::lost_sample lost_sample_of(const loader_sample& which, std::string reason, std::vector<std::string> causes) {
  const auto attempts = static_cast<std::uint32_t>(causes.size());
  return {which.epoch, 0, which.index.value_or(not_numbered), which.index ? std::string() : which.name, std::move(reason), attempts, std::move(causes)};
}

event event_of_loader(event_kind kind, const loader_sample& which, std::string text) {
  event e = event_of(kind, std::move(text));
  e.sample = which.index;
  if (!which.index) e.path = which.name;
  e.epoch = which.epoch;
  return e;
}

event event_of(lost_batch lost, std::size_t room) {
  event e = event_of(event_kind::batch_lost, std::move(lost.text));
  e.epoch = lost.epoch;
  e.sequence = lost.sequence;
  e.sample = lost.blamed;
  e.samples = std::move(lost.numbers);
  e.samples.resize(std::min({e.samples.size(), samples_listed, room}));
  e.samples_unlisted = lost.samples - e.samples.size();
  return e;
}

event event_of_recovered(std::uint64_t epoch, std::uint64_t sequence) {
  event e =
      event_of(event_kind::batch_recovered,
               fmt::format("batch {} of epoch {} was loaded by another worker, because the first one's process ended",
                           sequence, epoch));
  e.epoch = epoch;
  e.sequence = sequence;
  return e;
}

event event_of(const schedule::epoch_account& done) {
  event e = event_of(event_kind::epoch_done,
                     fmt::format("epoch {} is done: {} of {} in {}, {} failed, {} quarantined", done.epoch,
                                 done.delivered, counted(done.expected, "sample"),
                                 counted(done.batches, "batch", "batches"), done.failed, done.quarantined));
  e.epoch = done.epoch;
  return e;
}

event event_of(const stall_report& stalled) {
  event e = event_of(event_kind::stalled,
                     fmt::format("no progress for {:.0f} s: {}", stalled.seconds, stalled.text));
  e.worker = stalled.worker;
  return e;
}

std::vector<event> worker_watch::look(const std::vector<worker_status>& workers, bool degraded, std::uint32_t sacrificial_place, work_kind kind) {
  std::vector<event> news;
  for (const worker_status& w : workers) {
    seen& s = workers_[w.id];
    if (w.pid && s.started < w.incarnation) {
      const bool first = std::exchange(s.started, w.incarnation) == 0 && w.incarnation <= 1;
      news.push_back(event_of_worker(
          first ? event_kind::worker_started : event_kind::worker_restarted, w,
          fmt::format("worker {} {} (pid {}){}", w.id, first ? "started" : "was replaced", *w.pid,
                      w.id == sacrificial_place ? ": the sacrificial worker, which works alone on what may have killed other workers" : "")));
    }
    if (w.state == child_state::ready && s.ready < w.incarnation) {
      s.ready = w.incarnation;
      news.push_back(event_of_worker(event_kind::worker_ready, w, fmt::format("worker {} is ready", w.id)));
    }
    if (w.over_memory && s.over_memory < w.incarnation) {
      s.over_memory = w.incarnation;
      event e = event_of_worker(event_kind::memory_exceeded, w, fmt::format("worker {} {}", w.id, excess_in_words(*w.over_memory, kind)));
      const std::string work(work_for_people(w.over_memory->work, kind));
      e.sample = kind == work_kind::batches ? sample_in_work(work) : w.over_memory->sample;
      if (kind == work_kind::samples && !work.empty()) e.path = work;
      news.push_back(std::move(e));
    }
    const bool failed = w.state == child_state::failed;
    if (std::exchange(s.failed, failed) != failed && failed) {
      news.push_back(event_of_worker(event_kind::worker_failed, w,
                                     fmt::format("worker {} died too often and will not be replaced", w.id)));
    }
  }
  if (std::exchange(degraded_, degraded) != degraded) {
    news.push_back(degraded ? event_of(event_kind::degraded, "fewer workers are left than were requested")
                            : event_of(event_kind::recovered, "all requested workers are back"));
  }
  return news;
}

}  // namespace penstock::host
