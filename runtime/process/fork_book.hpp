// Which workers wait for a template, which orders it has, and when a template is executed: the decisions of
// worker_template. Pure: the time is an argument, and orders are numbers.
//
//            executed            ready                  declined (it must not fork, and says why)
//   absent ----------> preparing -----> ready ---+----------------------------------> declined: workers are executed
//      ^                  |               |      |
//      +---- it ends -----+---------------+      forks a worker for each order
//
// If it ends while it prepares, that counts for every worker that waits, since each would have done the same; after that
// only for the one that it was to fork. The others wait for the next template. Its workers live on.
#pragma once

#include "runtime/base/clock.hpp"

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace penstock::process {

class fork_book {
 public:
  enum class stage : std::uint8_t { absent, executing, preparing, ready, declined };
  using number = std::uint64_t;  ///< of an order; never used again

  [[nodiscard]] stage at() const noexcept { return at_; }

  // ---- workers ------------------------------------------------------------------------------------------

  /// A worker waits. Not when declined.
  number add(std::uint32_t worker);

  struct given_up {
    number order = 0;
    bool kill = false;  ///< kill the template, even before it runs: it hangs, or no worker needs it
  };
  /// Empty: this worker does not wait.
  std::optional<given_up> give_up(std::uint32_t worker);

  // ---- what to do now -----------------------------------------------------------------------------------

  [[nodiscard]] bool must_execute(steady_time now) const noexcept;
  /// When to ask again; never: not before something else happens.
  [[nodiscard]] steady_time executes_at() const noexcept;
  /// The oldest order that the template has not been sent.
  [[nodiscard]] std::optional<number> to_send() const noexcept;

  // ---- what happened ------------------------------------------------------------------------------------

  void sent(number order) noexcept;
  void executing() noexcept { at_ = stage::executing; }
  /// False: no worker waits for it any more, so kill it.
  [[nodiscard]] bool executed() noexcept;
  /// It could not be executed. Returns the orders, which are over.
  std::vector<number> not_executed();
  void ready() noexcept;

  enum class meaning : std::uint8_t {
    awaited,   ///< the order is over
    given_up,  ///< the start of this worker was given up
    repeated   ///< the order was answered before: template and worker both answer
  };
  [[nodiscard]] meaning answered(number order);
  /// Returns the orders, whose workers are to be executed.
  std::vector<number> declined();

  /// The template has ended and all its answers are known.
  struct ending {
    std::vector<number> lost;  ///< ended as well
    bool counts = true;        ///< as the template's own end, not only as that of workers
  };
  ending ended();
  /// Call after an end: when the next template may be executed.
  void execute_from(steady_time when) noexcept { next_ = when; }

 private:
  struct order {
    number id = 0;
    std::uint32_t worker = 0;
    bool sent = false;
    bool given_up = false;  // but sent: an answer may come
  };

  [[nodiscard]] bool anybody_waits() const noexcept;

  std::deque<order> orders_;  // not answered yet, oldest first
  stage at_ = stage::absent;
  number last_ = 0;
  steady_time next_{};     // when the next may be executed
  bool replace_ = false;   // its end counted: the next is executed before it is needed
  bool unneeded_ = false;  // it was killed because no worker waited for it
};

}  // namespace penstock::process
