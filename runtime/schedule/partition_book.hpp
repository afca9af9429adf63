// Decides whether a worker that has described what it serves may have its partition of the arena (rules M1 and M2): all workers
// of a run must serve the same, and each partition is prepared once. Pure; driven by the session actor and by a pool's host.
//
//   described --> like the others? --> first of the run: adopt --> first in its place: prepare --> give slots
//                       | no                 | failed                    | failed
//                       +--------------------+---------------------------+--> fail the run, refuse slots to everyone
#pragma once

#include "runtime/base/ids.hpp"
#include "runtime/base/result.hpp"
#include "runtime/base/work_kind.hpp"

#include <penstock/dataset.hpp>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace penstock::schedule {

/// What a worker of a stream serves.
struct served_dataset {
  dataset_description dataset{};
  /// The fingerprint that the dataset's author chose; `dataset` is a hash of the whole description.
  std::string own_fingerprint{};
  bool operator==(const served_dataset&) const = default;
};
/// What a worker of a pool serves, by name, in any order.
struct served_functions {
  std::vector<std::string> names;
  bool operator==(const served_functions&) const = default;
};
using served = std::variant<served_dataset, served_functions>;

// ---- commands ---------------------------------------------------------------------------------------------

/// The run uses this description from now on.
struct adopt_served {
  served what;  ///< functions are sorted
};
/// Reserve the worker's memory and announce the memory to its readers. Replacements of the
/// worker use the same memory.
struct prepare_partition {
  std::uint32_t partition = 0;
};
/// Tell the worker where its slots are.
struct give_slots {
  worker_ref who;
};
/// The run has failed, so the worker is not needed.
struct refuse_slots {
  worker_ref who;
};
struct fail_run {
  failure why;
};

using partition_command = std::variant<adopt_served, prepare_partition, give_slots, refuse_slots, fail_run>;

class partition_book {
 public:
  /// `expected`: what the session itself has found in the dataset, if the session can read the dataset.
  explicit partition_book(work_kind work, std::optional<dataset_description> expected = std::nullopt);

  /// A worker has described what it serves; `said` is a failure if its message was invalid.
  [[nodiscard]] std::vector<partition_command> described(worker_ref who, result<served> said);
  /// One of these commands could not be carried out. The returned commands replace the ones
  /// that would have followed.
  [[nodiscard]] std::vector<partition_command> failed(worker_ref who, failure why);

 private:
  [[nodiscard]] result<void> check(worker_ref who, const served& said) const;

  work_kind work_;
  std::optional<served> known_;  // what all workers must serve: from the session, or from the first worker
  bool adopted_ = false;
  std::set<std::uint32_t> prepared_;
  bool failed_ = false;
};

/// Carries out the book's commands. `carry_out`: takes any command, and returns result<void>.
template <class CarryOut>
void welcome(partition_book& book, worker_ref who, result<served> said, CarryOut&& carry_out) {
  for (const partition_command& next : book.described(who, std::move(said))) {
    const result<void> ok = std::visit(carry_out, next);
    if (ok) continue;
    for (const partition_command& instead : book.failed(who, ok.error())) static_cast<void>(std::visit(carry_out, instead));
    return;
  }
}

}  // namespace penstock::schedule
