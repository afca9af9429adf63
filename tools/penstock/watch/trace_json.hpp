// Batches' stamps as a trace in Chrome's format, which Perfetto and chrome://tracing show: one track a
// worker, the scheduler, the owner, the copy stream and the consumer; an arrow leads along each batch. Pure;
// used by `penstock trace`.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace penstock::cli {

/// Nanoseconds of the session's steady clock; 0: not known.
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
/// From the session's answer to "trace". Nothing if that is no batch.
[[nodiscard]] std::optional<traced_batch> traced_batch_of(const nlohmann::ordered_json& passage);

/// Something that happened to somebody: a death, a restart.
struct traced_event {
  std::int64_t at = 0;
  std::optional<std::uint32_t> worker;  ///< on its track; else on the scheduler's
  std::string kind;
  std::string text;
};

/// No span is negative and spans of a track never overlap, however stamps of different threads fall.
[[nodiscard]] nlohmann::ordered_json chrome_trace(const std::string& session,
                                                  std::vector<traced_batch> batches,
                                                  const std::vector<traced_event>& events);

}  // namespace penstock::cli
