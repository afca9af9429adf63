// Memory of results that Python reads in place, when the program forks: the child gets a copy of its own at the same address. The
// original is shared with a worker, which overwrites it once the program has dropped the result. Used by pool_module.cpp.
#pragma once

#include <cstddef>
#include <list>
#include <span>

namespace penstock::python {

struct range_for_children {
  std::span<const std::byte> bytes;
  std::byte* copy = nullptr;  // during a fork: the copied pages
};

/// The bytes, in the processes forked during the lifetime of this object: as they were at the fork. No write reaches the other
/// process. Covers fork() and functions built on it, but not a bare clone. A fork copies all such memory, in the parent; a program
/// without such memory pays nothing. Thread-safe.
class copied_in_children {
 public:
  /// `bytes` must stay valid.
  explicit copied_in_children(std::span<const std::byte> bytes);
  ~copied_in_children();
  copied_in_children(const copied_in_children&) = delete;
  copied_in_children& operator=(const copied_in_children&) = delete;

 private:
  std::list<range_for_children>::iterator entry_;
};

}  // namespace penstock::python
