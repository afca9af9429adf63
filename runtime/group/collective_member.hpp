// One rank's view of the group's collective operations: the current operation, and the last result. Pure.
// Used by member_book; the other side is collective_book.
#pragma once

#include "runtime/base/check.hpp"
#include "runtime/group/collective_messages.hpp"

#include <cstdint>
#include <string>
#include <utility>

namespace penstock::group {

/// Not thread-safe.
class collective_member {
 public:
  /// `done`: operations that earlier processes of this rank completed.
  explicit collective_member(std::uint64_t done) { said_.done = done; }

  /// Enters the next operation. The rank must not be in one already.
  void enter(collective_kind what, std::string value) {
    PENSTOCK_CHECK(!waits(), "a rank is in one collective operation at a time");
    if (said_.words.size() == collective_words_max) said_.words.erase(said_.words.begin());
    said_.words.push_back({said_.done + 1, what, std::move(value)});
  }
  /// Ignores late and repeated results. Returns true if the rank now has the result that it waits for.
  bool heard(shared_collective_result result) {
    if (!result || !waits() || result->number != said_.words.back().number) return false;
    result_ = std::move(result);
    said_.done = result_->number;
    said_.digest = digest_of(*result_);
    return true;
  }

  [[nodiscard]] bool waits() const noexcept {
    return !said_.words.empty() && said_.words.back().number > said_.done;
  }
  [[nodiscard]] std::uint64_t done() const noexcept { return said_.done; }
  /// Result of the last operation.
  [[nodiscard]] const shared_collective_result& result() const noexcept { return result_; }
  [[nodiscard]] const collective_report& report() const noexcept { return said_; }

 private:
  collective_report said_;
  shared_collective_result result_;
};

}  // namespace penstock::group
