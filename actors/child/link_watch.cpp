#include "actors/child/link_watch.hpp"

#include "runtime/base/text.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace penstock::child {

link_watch::link_watch(int link, std::function<bool()> open) : link_(link), open_(std::move(open)) {
  struct stat facts {};
  if (::fstat(link, &facts) != 0) return;
  device_ = facts.st_dev;
  inode_ = facts.st_ino;
}

bool link_watch::lost() const {
  return !is_link() && open_();
}

bool link_watch::is_link() const noexcept {
  struct stat facts {};
  return ::fstat(link_, &facts) == 0 && facts.st_dev == device_ && facts.st_ino == inode_;
}

void link_watch::abort_after(std::string_view work) const {
  fmt::print(stderr, "penstock: {} has closed or replaced descriptor {}, this worker's link to its session\n", printable(work), link_);
  std::abort();
}

}  // namespace penstock::child
