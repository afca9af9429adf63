// Fails the run when too many samples fail, because the cause must be systematic: [loader] max_failed_fraction
// (rule S13). Used by the scheduler actor in addition to the ledger, which handles samples one by one.
// Pure.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/schedule/epoch_book.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace penstock::schedule {

class failure_limit {
 public:
  /// This many failures per epoch are always allowed, so that a few bad files do not fail a small dataset.
  static constexpr std::uint64_t always_allowed = 32;
  /// The number of kinds of reasons that are counted; further ones count as one kind.
  static constexpr std::size_t reasons_max = 64;

  explicit failure_limit(double max_fraction) : max_fraction_(max_fraction) {}

  /// Records a failed sample. Removes `name` from `reason` and ignores numbers, so that the same fault of different
  /// samples counts as one. Returns how many failures of the same kind there are so far, including this one.
  std::uint64_t note(const std::string& name, const std::string& reason);

  /// Call after each delivery. Returns why the run must fail (errc::dataset),
  /// with the most frequent reason. Empty if it need not fail.
  [[nodiscard]] std::optional<failure> check(const epoch_account& open) const;

 private:
  double max_fraction_;
  std::uint64_t noted_ = 0;  // failures noted so far; may exceed those delivered, because workers are ahead
  struct counted_reason {
    std::string first;  // the text of the first failure of this kind
    std::uint64_t times = 0;
  };
  std::map<std::string, counted_reason> reasons_;  // by kind
  std::uint64_t others_ = 0;                       // failures of further kinds
};

}  // namespace penstock::schedule
