// One rank's communicator, from the order to make it until nothing of it is left: whether a program may use it, when it is
// aborted, and when nothing helps but the end of the process that has it. Pure: no thread, no I/O, time is an argument.
// Orders of the group and news of the library come in as calls, commands go out of advance(). The group decides when one
// is made or aborted (group_book, member_book); this is what happens in the process that has the GPU.
//
//            make               made                 abort              no scope is open
//   none ----------> making ----------> made ----------------> draining ----------------> aborting
//     ^                 |  failed         |  failed               |                          |   |
//     |                 +--> broken <-----+                       +---- abort_timeout ---+   |   |
//     |                        |  abort                                                  v   v   |
//     |                        +--> (as from made)                                   replace_owner
//     +---------------------------------------- aborted -----------------------------------------+
//
// A *scope* is a stretch of a program's work in which it calls the library with the communicator. The library does not
// allow an abort beside such a call, so the abort waits for open scopes, and no new one is opened meanwhile. Work that
// was queued in a scope and is not done does not hold it up: the abort ends that work.
//
// Words about an earlier communicator than the present one are dropped.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/group/group_messages.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace penstock::group {

struct communicator_limits {
  nanoseconds make_timeout{120'000'000'000};
  nanoseconds abort_timeout{10'000'000'000};
};

// ---- commands ------------------------------------------------------------------------------------------------

/// Answer with made() or failed().
struct begin_making {
  std::uint64_t number = 0;
  std::string id{};
};
/// Also of one that is still being made. Answer with aborted().
struct begin_abort {
  std::uint64_t number = 0;
};
/// To the group: how far it is.
struct tell_communicator {
  communicator_state state;
};
/// The last command: the abort cannot be done, and only a new process gets rid of this communicator.
struct replace_owner {
  std::string reason;
};

using communicator_command = std::variant<begin_making, begin_abort, tell_communicator, replace_owner>;

/// Not thread-safe.
class communicator_book {
 public:
  explicit communicator_book(communicator_limits limits) : limits_(limits) {}

  [[nodiscard]] std::vector<communicator_command> advance(steady_time now);
  /// When advance() has something to do without an event. Times are those of whoever calls: a running_clock's.
  [[nodiscard]] steady_time next_deadline() const noexcept { return due_; }

  // ---- orders of the group

  /// Ignored unless the number is higher than any before. One that is left of an earlier number is aborted first.
  void make(std::uint64_t number, std::string id, steady_time now);
  /// Of this number and all before it.
  void abort(std::uint64_t number, steady_time now);

  // ---- news of the library

  void made(std::uint64_t number);
  /// It could not be made, or has an asynchronous error.
  void failed(std::uint64_t number, std::string why);
  void aborted(std::uint64_t number);

  // ---- the program

  /// Nothing is counted where it returns false.
  [[nodiscard]] bool open_scope();
  void close_scope();
  [[nodiscard]] bool usable() const noexcept { return stage_ == stage::made; }
  /// Whether there will be one, by an order that is there already.
  [[nodiscard]] bool pending() const noexcept { return stage_ == stage::making || next_.has_value(); }
  /// The present one, or the last.
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  [[nodiscard]] std::uint32_t open_scopes() const noexcept { return scopes_; }
  /// A scope of this one was opened: work of the program may depend on other ranks.
  [[nodiscard]] bool was_used() const noexcept { return used_; }

 private:
  enum class stage : std::uint8_t { none, making, made, broken, draining, aborting, over };
  struct order {
    std::uint64_t number = 0;
    std::string id;
  };

  void begin(order next, steady_time now);
  void drain(steady_time now);
  void tell(communicator_state::how at, std::string cause = {});
  void give_up(std::string reason);

  communicator_limits limits_;
  stage stage_ = stage::none;
  std::uint64_t number_ = 0;
  std::uint64_t ordered_ = 0;   // the highest number that was to be made
  std::uint64_t unwanted_ = 0;  // this one and all before it are to be aborted
  std::optional<order> next_;   // waits until nothing of the present one is left
  std::uint32_t scopes_ = 0;
  bool used_ = false;
  steady_time due_ = never;
  std::vector<communicator_command> outbox_;
};

}  // namespace penstock::group
