// The command line of a worker program started by hand. Used by the loader's and the job worker's by_hand.
#pragma once

#include "runtime/base/result.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace penstock::child {

/// This process's arguments, the program's name first, so that a worker program's main need not pass them.
std::vector<std::string> own_arguments();

/// Iterates over options; accepts "--load 7" and "--load=7". `all` must outlive it.
class argument_list {
 public:
  explicit argument_list(const std::vector<std::string>& all) : all_(all) {}

  [[nodiscard]] bool done() const { return at_ == all_.size(); }
  /// The current option's name, without "=" and its value. Requires !done().
  [[nodiscard]] std::string name() const { return all_[at_].substr(0, all_[at_].find('=')); }
  [[nodiscard]] const std::string& whole() const { return all_[at_]; }
  void skip() { ++at_; }
  /// The current option's value; advances past it. Refuses (errc::usage) if there is none.
  result<std::string> value();

 private:
  const std::vector<std::string>& all_;
  std::size_t at_ = 0;
};

}  // namespace penstock::child
