// Makes a session's events and their texts: one function per kind. Pure; used by the session, which adds the
// events to its journal.
#pragma once

#include "actors/protocol/local/listeners.hpp"
#include "actors/protocol/local/scheduler_messages.hpp"
#include "runtime/base/work_kind.hpp"

#include <penstock/event.hpp>
#include <penstock/pool.hpp>

#include <map>
#include <string>
#include <vector>

namespace penstock::host {

[[nodiscard]] event event_of(event_kind kind, std::string text);
/// An event about a loader host.
[[nodiscard]] event event_of_host(event_kind kind, const std::string& host, const std::string& text);
[[nodiscard]] event event_of(const death_report& death, work_kind kind);
[[nodiscard]] event event_of(const owner_death_report& death);
[[nodiscard]] event event_of_failed(const scheduler::lost_sample& lost);
[[nodiscard]] event event_of_quarantined(const scheduler::lost_sample& lost);
/// A data loader's sample in the form of a session's sample. If its index is not a number, the number is
/// not_numbered and the name identifies the sample.
[[nodiscard]] scheduler::lost_sample lost_sample_of(const loader_sample& which, std::string reason, std::vector<std::string> causes);
[[nodiscard]] std::string text_of_quarantined(const std::string& name, const scheduler::lost_sample& lost);
[[nodiscard]] event event_of_loader(event_kind kind, const loader_sample& which, std::string text);
/// `room`: how many of its samples may be listed.
[[nodiscard]] event event_of(lost_batch lost, std::size_t room);
[[nodiscard]] event event_of_recovered(std::uint64_t epoch, std::uint64_t sequence);
[[nodiscard]] event event_of(const schedule::epoch_account& done);
[[nodiscard]] event event_of(const stall_report& stalled);
[[nodiscard]] event event_of(const gpu_owner::attached_partition& what);

/// Compares the state of all workers with the previous one; each change becomes an event.
class worker_watch {
 public:
  [[nodiscard]] std::vector<event> look(const std::vector<worker_status>& workers, bool degraded, std::uint32_t sacrificial_place, work_kind kind);

 private:
  struct seen {
    std::uint32_t started = 0;  // the last incarnation with a reported start
    std::uint32_t ready = 0;
    std::uint32_t over_memory = 0;
    bool failed = false;
  };
  std::map<std::uint32_t, seen> workers_;
  bool degraded_ = false;
};

}  // namespace penstock::host
