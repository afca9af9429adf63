// The command line of a worker program that somebody starts by hand. Used by the loader's and the job worker's by_hand.
#pragma once

#include "runtime/base/result.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace penstock::child {

/// This process's, the program's name first: a worker program's main need not hand them over.
std::vector<std::string> own_arguments();

/// Walks along options, "--load 7" and "--load=7" alike. `all` outlives it.
class argument_list {
 public:
  explicit argument_list(const std::vector<std::string>& all) : all_(all) {}

  [[nodiscard]] bool done() const { return at_ == all_.size(); }
  /// Of the option here, without what stands behind "=". Not when done().
  [[nodiscard]] std::string name() const { return all_[at_].substr(0, all_[at_].find('=')); }
  [[nodiscard]] const std::string& whole() const { return all_[at_]; }
  void skip() { ++at_; }
  /// The value of the option here; goes on behind it. Refuses (errc::usage) when there is none.
  result<std::string> value();

 private:
  const std::vector<std::string>& all_;
  std::size_t at_ = 0;
};

}  // namespace penstock::child
