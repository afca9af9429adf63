// A program as one rank of a group: the rank_driver, rank 0's coordinator, and their links, on a separate I/O
// thread. This class only translates: rank_driver and coordinator_driver decide membership, collective_member
// and collective_book decide collective operations. Used by Group (penstock/group.hpp). Sessions use
// actors/group instead: a session's group begins with a dataset and ends with a stream; this one has neither,
// and lasts until all programs have left.
//
//   threads of the program:  enter, fail, leave  ---- posted ---->  the I/O thread: books and links
//                            news, wait          <--- mutex ------
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/group/collective_messages.hpp"
#include "runtime/group/communicator_keeper.hpp"
#include "runtime/net/group_setup.hpp"
#include "runtime/process/io_thread.hpp"

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace penstock::group {

/// Leave `links.attachment_bytes_max` unset: program_group sets it.
struct program_group_setup : group_setup {
  std::string name;                                     ///< name of the group, for messages
  std::uint64_t collectives_done = 0;                   ///< operations that earlier processes of this rank completed
  std::shared_ptr<communicator_keeper> communicator{};  ///< null: the group has none
};

/// The current state of the group.
struct program_group_news {
  bool joined = false;  ///< all ranks have arrived and agree
  std::optional<end_rank> end{};
  std::optional<failure> refused{};  ///< the links cannot be made with these settings
  std::string waits_for{};           ///< what this rank waits for while it joins
  std::uint64_t collectives_done = 0;
  shared_collective_result result{};         ///< result of the last completed operation
  std::vector<std::uint32_t> not_entered{};  ///< ranks that have not entered the operation in which this rank waits
  std::vector<std::uint32_t> lost{};
  bool may_go = false;  ///< after leave(): whether no rank needs this process any more
};

class program_group {
 public:
  /// Starts to join. Refuses what the links refuse.
  static result<std::unique_ptr<program_group>> begin(program_group_setup setup);
  /// Ends at once. After leave() wait for may_go first; otherwise other ranks may be left without an answer.
  ~program_group();
  program_group(const program_group&) = delete;
  program_group& operator=(const program_group&) = delete;

  // Call from any thread. Only wait() waits.

  /// Begins the next collective operation. The previous one must be done.
  void enter(collective_kind what, std::string value);
  /// Ends the group with this cause.
  void fail(std::string why);
  /// Leaves the group: this program enters no more operations.
  void leave();

  [[nodiscard]] program_group_news news() const;
  /// Waits until `enough(news)` returns true, or until the given time. Returns whether it did.
  bool wait(steady_time until, const std::function<bool(const program_group_news&)>& enough) const;

 private:
  class body;
  struct shared_news {
    mutable std::mutex mutex;
    mutable std::condition_variable changed;
    program_group_news news;
  };

  program_group();
  void post(std::function<void(body&)> what);

  const std::shared_ptr<shared_news> shared_ = std::make_shared<shared_news>();
  process::io_thread io_;
  std::shared_ptr<body> body_;  // used only on the I/O thread
};

}  // namespace penstock::group
