// Whether the stream moves, and if not, who is waited for. A stream that stands still without a word is the
// worst kind of failure, so whenever nothing has moved for 5 s this says why. Pure: facts and the time come
// in, a stall comes out. Driven by actors/session/progress_ticker, once a second.
//
// It moves when a worker finishes a sample or a batch passes a stage of its way. What does not count: starts,
// deaths, heartbeats and restarts of processes, since a pool can crash in circles for ever.
//
// It need not move while nobody is owed a batch: before the first demand, after the end, and while the
// consumer asks for nothing and everything that was prepared lies in its hands.
#pragma once

#include "runtime/base/batch_times.hpp"
#include "runtime/base/clock.hpp"

#include <penstock/report.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace penstock::supervision {

/// How the session stands at one moment.
struct progress_facts {
  session_status status;                 ///< with the samples that workers are at right now
  std::vector<batch_passage> under_way;  ///< by position
  std::uint64_t released = 0;            ///< batches that the consumer gave back, ever
  std::uint32_t buffers = 0;             ///< device buffers that there are: [gpu] buffers
  std::uint32_t sacrificial_place = 0;
  bool consumer_waits = false;                    ///< it is asking for a batch right now
  bool owner_is_elsewhere = false;                ///< placement = "process": its sink is the consumer
  std::map<std::uint32_t, std::string> standing;  ///< of workers: where the thread at the sample stands
};

/// Who is waited for. The names are those of the field `kind` in status.
enum class stall_kind : std::uint8_t {
  sample,     ///< "sample": a worker has been at one for a while
  worker,     ///< "worker": one that starts, waits for its restart, or has a batch and does not begin it
  trial,      ///< "trial": a suspect has to be loaded alone first
  nobody,     ///< "nobody": no worker is left
  gpu_owner,  ///< "gpu": it starts, is being replaced, or copies
  consumer,   ///< "consumer": it takes no batch, or releases none
  operator_   ///< "operator": paused, or every worker is drained
};
[[nodiscard]] const char* name_of(stall_kind kind) noexcept;

class progress_watch {
 public:
  enum class news : std::uint8_t { none, stalled, moves_again };

  explicit progress_watch(nanoseconds patience = nanoseconds(5'000'000'000)) : patience_(patience) {}

  /// What has changed: `stalled` again when another kind of thing is waited for. Ask at least as often as the
  /// patience is long: what moved and came to rest between two looks counts as moved at the second one.
  news look(steady_time now, const progress_facts& facts);

  /// None while it moves, or need not. Its seconds count from the last movement.
  [[nodiscard]] const std::optional<stall_report>& stalled() const noexcept { return stalled_; }

 private:
  [[nodiscard]] bool moved(const progress_facts& facts);

  nanoseconds patience_;
  std::optional<stall_report> stalled_;
  steady_time last_movement_ = never;
  std::uint64_t stages_passed_ = 0;
  std::map<std::uint32_t, std::pair<std::uint32_t, std::uint64_t>>
      samples_;  // by place: incarnation, samples
};

}  // namespace penstock::supervision
