// Finds what the stream waits for at one moment. Used by `top` and `describe` at any time, and by
// progress_watch after a time without progress. Pure.
#pragma once

#include "runtime/base/batch_times.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/lost_wait.hpp"
#include "runtime/base/pauser.hpp"

#include <penstock/pool.hpp>
#include <penstock/report.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace penstock::supervision {

/// The batch that the consumer of a data loader waits for. Each job of a data loader loads one batch, and the
/// consumer takes the batches in order.
struct awaited_batch {
  std::uint64_t job = 0;
  batch_mark doing{};
  /// When `doing.number` last changed; empty: it has not changed since the wait began.
  std::optional<steady_time> since{};
};

/// How far a worker has got with the batch in one of its slots.
struct loading_now {
  std::uint32_t slot = 0;
  std::uint32_t rows = 0;  ///< how many are finished
  steady_time since{};     ///< when its current sample began
};

/// The session at one moment; a pool has status.jobs instead of batches and buffers.
struct progress_facts {
  session_status status;                 ///< with the samples that workers are loading now
  std::vector<batch_passage> under_way;  ///< by position
  std::uint64_t released = 0;            ///< batches that the consumer has released so far
  std::uint64_t seeks = 0;               ///< number of seeks; after each, positions are leased again
  std::uint32_t buffers = 0;             ///< number of device buffers: [gpu] buffers
  std::uint32_t sacrificial_place = 0;
  nanoseconds worker_start_deadline{0};
  nanoseconds owner_start_deadline{0};
  std::optional<pauser> paused_by{};  ///< who paused the session; empty: an operator, if it is paused at all
  bool consumer_waits = false;        ///< whether the consumer is asking for a batch right now
  bool owner_is_elsewhere = false;    ///< placement = "process": the owner's sink is the consumer
  bool owner_is_frozen = false;       ///< whether the owner's process is suspended
  std::optional<awaited_batch> batch{};           ///< only while the consumer of a data loader waits
  std::vector<slow_load> slow_loads{};            ///< of a data loader: the latest slow loads
  std::vector<lost_wait> lost_waits{};            ///< of a data loader: the latest, then the one in progress
  steady_time now{};                              ///< when these facts were collected
  std::map<std::uint32_t, loading_now> loading;   ///< by worker; only workers that are loading a batch
  std::map<std::uint32_t, std::uint32_t> leases;  ///< by worker; batches or jobs that the worker was sent and has not finished; only workers that have some
  std::map<std::uint32_t, std::string> standing;  ///< by worker: where the thread that loads the sample waits
};

struct awaited {
  stall_kind kind;
  std::string
      text;  ///< "worker/3, which has been loading sample 'tom.jpg' for 7.2 s, in batch 17 of epoch 0"
  std::optional<std::uint32_t> worker{};
  nanoseconds usual{0};  ///< how long this may take before it is reported: for a start, start_patience()
  std::string sample{};  ///< stall_report::sample
  std::uint32_t hung_before = 0;  ///< stall_report::hung_before
  bool suspended = false;         ///< stall_report::suspended
};
/// How long a start may take before it is reported to a user: 15 s, or a quarter of the deadline, but at most
/// a minute.
[[nodiscard]] nanoseconds start_patience(nanoseconds deadline) noexcept;
[[nodiscard]] awaited find_blocker(const progress_facts& facts);

/// Whether progress is expected: a batch is due or, in a pool that is not a data loader, jobs wait while none runs.
[[nodiscard]] bool is_owed(const progress_facts& facts);

}  // namespace penstock::supervision
