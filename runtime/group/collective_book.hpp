// The coordinator's side of collective operations: which ranks have entered which
// operation, and its result. Pure. Used by group_book, which decides whose reports count.
//
// A complete result never changes: a restarted rank that enters the operation again with other bytes gets the
// result that the others have. A restarted coordinator does not know these results; if a rank's result
// differs from the one that the operation would give now, the coordinator ends the group. The book keeps the
// latest two results: no rank can ask for an older one (collective_messages.hpp), unless it restarted from a
// state that is too old, which ends the group.
#pragma once

#include "runtime/group/collective_messages.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace penstock::group {

/// Not thread-safe.
class collective_book {
 public:
  explicit collective_book(std::uint32_t world_size) : ranks_(world_size) {}

  /// The newest report of the process that has this rank. `leaves`: the process will enter no other operation.
  void heard(std::uint32_t rank, const collective_report& report, bool leaves);
  /// Another process has the rank now. Only the completed operations of the previous process count.
  void replaced(std::uint32_t rank);

  /// The result that this rank waits for. Null if it waits for none, or if the operation is not complete.
  [[nodiscard]] shared_collective_result answer_for(std::uint32_t rank) const;
  /// The ranks that have not entered the operation in which this rank waits, ascending.
  [[nodiscard]] std::vector<std::uint32_t> awaited_by(std::uint32_t rank) const;

  /// Why the programs are permanently out of step, and at which rank. Only the first reason is kept.
  struct disagreement {
    std::uint32_t rank = 0;
    std::string what{};
  };
  [[nodiscard]] const std::optional<disagreement>& wrong() const noexcept { return wrong_; }

 private:
  struct member {
    collective_report said{};
    bool leaves = false;
    /// The operation in which a rank waits for its result.
    [[nodiscard]] const collective_word* waits_in() const noexcept {
      if (said.words.empty() || said.words.back().number <= said.done) return nullptr;
      return &said.words.back();
    }
    [[nodiscard]] const collective_word* word(std::uint64_t number) const noexcept {
      for (const collective_word& one : said.words) {
        if (one.number == number) return &one;
      }
      return nullptr;
    }
  };

  void complete(std::uint64_t number);
  void compare(std::uint32_t rank);
  void find_missing_for(std::uint32_t waiting, std::uint32_t other);
  void disagree(std::uint32_t rank, std::string what);

  std::vector<member> ranks_;
  std::map<std::uint64_t, shared_collective_result> results_;  // of the latest two operations
  std::optional<disagreement> wrong_;
};

}  // namespace penstock::group
