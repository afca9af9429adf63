// Files that one process of a job makes for all its processes on this host, such as the listing of a dataset. The processes
// meet at an abstract socket name. The kernel gives the name to one of them, the maker, and frees it when the maker ends
// for any reason: nothing is left to clean up, and there is no lock that could be stale. Used by sessions that are ranks
// of a group.
//
//   other process                        maker
//     connect ---------------------------> is it the same user?
//     <----------------------------- wait  twice a second, until the files are made
//     <---------------------------- files  their descriptors: once for each process
//     <----------------------------- none  it has had them
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/fd.hpp"

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace penstock::process {

/// The kernel's limit on the descriptors in one message.
inline constexpr std::size_t shared_files_max = 253;

struct share_patience {
  nanoseconds silence = std::chrono::seconds(5);  ///< a maker that is silent for this long is suspended or hangs
  nanoseconds all = std::chrono::minutes(10);     ///< how long to wait for the files
  /// How long a name may be bound without a listener. A maker that is starting listens within an instant;
  /// another user who holds the name never does.
  nanoseconds refusal = std::chrono::seconds(1);
};

/// One process's side. Move-only. A maker keeps a thread, which serves the other processes until the object is
/// destroyed. Only processes in the same network namespace see each other.
class shared_files {
 public:
  /// Shares nothing.
  shared_files();
  /// Becomes the maker if there is none. Otherwise waits for the maker's files; calls `waiting` meanwhile, about twice a
  /// second. Never fails: whatever goes wrong, this process makes the files for itself. It also does so if it
  /// has already received the files: a program that asks again wants new ones.
  static shared_files find(const std::string& name, const std::function<void()>& waiting = {}, share_patience patience = {});
  ~shared_files();
  shared_files(shared_files&&) noexcept;
  shared_files& operator=(shared_files&&) noexcept;

  /// The files that another process has made; empty if this process must make them.
  [[nodiscard]] std::vector<unique_fd> take() noexcept { return std::move(received_); }
  /// The pid of that process; 0 if there is none, or if it is in another pid namespace.
  [[nodiscard]] pid_t maker() const noexcept { return maker_; }

  /// Gives duplicates of these files, at most shared_files_max, to all processes that wait or will ask. Has no effect
  /// on a process that is not the maker. If the object is destroyed instead, one of the waiting processes becomes the
  /// maker.
  void publish(std::span<const int> files);

 private:
  class server;

  std::vector<unique_fd> received_;
  pid_t maker_ = 0;
  std::unique_ptr<server> server_;
};

}  // namespace penstock::process
