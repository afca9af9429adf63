// One rank's communicator, from the order to make it until it is completely gone: whether a program may use
// it, when it is aborted, and when its process must be replaced instead. Pure: no thread, no I/O, time is
// an argument. Orders of the group and events of the library come in as calls, commands go out of
// advance(). The group decides when a communicator is made or aborted (group_book, member_book); this class
// carries out the decision in the process with the GPU.
//
//            make               made                 abort              no scope is open
//   none ----------> making ----------> made ----------------> draining ----------------> aborting
//     ^                 |  failed         |  failed               |                          |   |
//     |                 +--> broken <-----+                       +---- abort_timeout ---+   |   |
//     |                        |  abort                                                  v   v   |
//     |                        +--> (as from made)                                   replace_owner
//     +---------------------------------------- aborted -----------------------------------------+
//
// A *scope* is a section of a program in which it calls the library with the communicator. The library
// forbids an abort during such a call, so the abort waits for open scopes, and no new scope is opened
// meanwhile. Unfinished work that was queued in a scope does not delay the abort: the abort ends that work.
//
// Events of earlier communicators are dropped.
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
/// Abort the communicator, even if it is still being made. Answer with aborted().
struct begin_abort {
  std::uint64_t number = 0;
};
/// Tell the group the state of the communicator.
struct tell_communicator {
  communicator_state state;
};
/// The last command. The communicator cannot be aborted,
/// so the process that holds it must be replaced.
struct replace_owner {
  std::string reason;
};

using communicator_command = std::variant<begin_making, begin_abort, tell_communicator, replace_owner>;

/// Not thread-safe.
class communicator_book {
 public:
  explicit communicator_book(communicator_limits limits) : limits_(limits) {}

  [[nodiscard]] std::vector<communicator_command> advance(steady_time now);
  /// When to call advance() even if no event arrives. Times are those of the caller's running_clock.
  [[nodiscard]] steady_time next_deadline() const noexcept { return due_; }

  // ---- orders of the group

  /// Ignored unless the number is higher than all earlier ones. A remaining communicator of an earlier
  /// number is aborted first.
  void make(std::uint64_t number, std::string id, steady_time now);
  /// Aborts this number and all before it.
  void abort(std::uint64_t number, steady_time now);

  // ---- events of the library

  void made(std::uint64_t number);
  /// The communicator could not be made, or has an asynchronous error.
  void failed(std::uint64_t number, std::string why);
  void aborted(std::uint64_t number);

  // ---- the program

  /// Changes nothing if it returns false.
  [[nodiscard]] bool open_scope();
  void close_scope();
  [[nodiscard]] bool usable() const noexcept { return stage_ == stage::made; }
  /// Whether an order that has already arrived will lead to a communicator.
  [[nodiscard]] bool pending() const noexcept { return stage_ == stage::making || next_.has_value(); }
  /// The number of the current communicator, or else of the last one.
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  /// Whether a scope of this communicator was opened, so that the program's work may depend on other ranks.
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
  std::uint64_t ordered_ = 0;   // the highest number that was ordered
  std::uint64_t unwanted_ = 0;  // this number and all before it must be aborted
  std::optional<order> next_;   // waits until the current one is completely gone
  std::uint32_t scopes_ = 0;
  bool used_ = false;
  steady_time due_ = never;
  std::vector<communicator_command> outbox_;
};

}  // namespace penstock::group
