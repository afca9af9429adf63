// The findings of `penstock chaos`: the sums over all disturbed runs, as JSON and in words. Used by the chaos
// command.
#pragma once

#include "tools/penstock/chaos/batch_journal.hpp"
#include "tools/penstock/chaos/fault_injector.hpp"
#include "tools/penstock/chaos/stream_check.hpp"

#include <penstock/error.hpp>
#include <penstock/report.hpp>

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace penstock::cli {

/// One run of the stream.
struct playing {
  journal_reading delivered;
  /// Pairs: the journal's length in bytes, and how many batches the session had reported as delivered by then.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> promises;
  std::vector<std::string> digests;  // one per epoch
  std::set<std::uint64_t> quarantined;
  std::uint64_t private_bytes = 0;  // the maximum over all workers
  double slowest_sample = 0;        // seconds of the slowest sample, as seen by polling the workers
  run_report report;
};

/// Sums over all disturbed runs.
struct chaos_sums {
  stream_faults stream;
  std::uint64_t rounds = 0;
  std::uint64_t restarts = 0;
  std::uint64_t deaths = 0;
  std::uint64_t owner_restarts = 0;
  std::uint64_t owner_deaths = 0;
  std::uint64_t replayed_batches = 0;
  std::uint64_t stale_dropped = 0;
  std::uint64_t wrongly_quarantined = 0;
  bool digests_equal = true;
  double seconds = 0;
  std::uint64_t samples = 0;
  std::optional<failure> error;
};

/// Compares a disturbed run with the undisturbed one and adds its findings.
void add(chaos_sums& sums, const stream_check& check, const playing& undisturbed, const playing& round);

struct chaos_result {
  nlohmann::ordered_json as_json;  ///< schema penstock.chaos/1
  bool good = false;               ///< the same stream, and no error
};

[[nodiscard]] chaos_result result_of(const fault_injector_settings& asked, const playing& undisturbed,
                                     const stream_check& check, const chaos_sums& sums,
                                     const std::vector<chaos_fault>& faults);
/// Prints the result as text.
void tell(const chaos_result& result);

}  // namespace penstock::cli
