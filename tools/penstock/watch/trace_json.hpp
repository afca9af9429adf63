// Converts timestamps of batches to a trace in Chrome's format, for Perfetto and chrome://tracing: one track
// each for the workers, the scheduler, the owner, the copy stream and the consumer; arrows connect the spans
// of a batch. Pure; used by `penstock trace`.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace penstock::cli {

/// Nanoseconds of the session's steady clock; 0: unknown.
struct traced_batch {
  std::uint64_t number = 0;
  std::uint64_t epoch = 0;
  std::uint64_t sequence = 0;
  std::uint32_t worker = 0;
  std::uint32_t incarnation = 0;
  std::uint32_t samples = 0;
  std::int64_t leased = 0;
  std::int64_t begun = 0;
  std::int64_t loaded = 0;
  std::int64_t ordered = 0;
  std::int64_t submitted = 0;
  std::int64_t copied = 0;
  std::int64_t ready = 0;
  std::int64_t taken = 0;
  std::int64_t released = 0;
};
/// Parses an entry of the session's answer to "trace". Empty if it is not a batch.
[[nodiscard]] std::optional<traced_batch> traced_batch_of(const nlohmann::ordered_json& passage);

/// An event of a worker or the owner: a death, a restart.
struct traced_event {
  std::int64_t at = 0;
  std::optional<std::uint32_t> worker;  ///< the worker on whose track the event appears; empty: the scheduler's track
  std::string kind;
  std::string text;
};

struct traced_session {
  std::string name;
  std::vector<traced_batch> batches;
  std::vector<traced_event> events;
};

/// Each session is a process in the trace; all run on one machine and share its clock. No span is negative,
/// and spans of a track never overlap, even if timestamps of different threads are inconsistent.
[[nodiscard]] nlohmann::ordered_json chrome_trace(std::vector<traced_session> sessions);

}  // namespace penstock::cli
