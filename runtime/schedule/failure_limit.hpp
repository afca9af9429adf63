// When failed samples are no longer single bad files but a fault of the whole: [loader] max_failed_fraction
// (semantics 3). Used by the scheduler beside the ledger, which knows samples one by one. Pure.
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
  /// So many failures of an epoch are always allowed: a small dataset may have a bad corner.
  static constexpr std::uint64_t always_allowed = 32;
  /// Reasons that are told apart; what comes later counts as "other reasons".
  static constexpr std::size_t reasons_max = 64;

  explicit failure_limit(double max_fraction) : max_fraction_(max_fraction) {}

  /// A sample failed. The reason may hold its name, which does not make it another reason.
  void note(const std::string& name, const std::string& reason);

  /// After each delivery: nothing, or why the run has to fail (errc::dataset), with the most frequent reason.
  [[nodiscard]] std::optional<failure> check(const epoch_account& open) const;

 private:
  double max_fraction_;
  std::map<std::string, std::uint64_t> reasons_;
};

}  // namespace penstock::schedule
