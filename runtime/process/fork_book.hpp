// Which workers wait for a template, which orders it has, and when a template is started: the decisions of
// worker_template. Pure: the time is an argument, and orders are numbers.
//
//            executed            ready                  declined (it must not fork, and says why)
//   absent ----------> preparing -----> ready ---+----------------------------------> declined: workers start with exec
//      ^                  |               |      |
//      +---- it ends -----+---------------+      forks a worker for each order
//
// If the template ends while it prepares, this counts as the end of every waiting worker, because each would
// have ended in the same way. If the template ends later, this counts only as the end of the worker that it
// was about to fork; the others wait for the next template. Workers that it has forked keep running.
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
  using number = std::uint64_t;  ///< identifies an order; never reused

  /// A template hangs if it has orders but answers none for this long. A fork takes milliseconds.
  static constexpr std::chrono::seconds answers_within{1};

  [[nodiscard]] stage at() const noexcept { return at_; }

  // ---- workers ------------------------------------------------------------------------------------------

  /// A worker waits for a template. Do not call when declined.
  number add(std::uint32_t worker);

  struct given_up {
    number order = 0;
    bool kill = false;  ///< kill the template, even if it is still starting: it hangs, or no worker needs it
  };
  /// Empty if this worker is not waiting.
  std::optional<given_up> give_up(std::uint32_t worker, steady_time now);

  // ---- what to do now -----------------------------------------------------------------------------------

  [[nodiscard]] bool must_execute(steady_time now) const noexcept;
  /// When to ask again. `never` means: only after another event.
  [[nodiscard]] steady_time executes_at() const noexcept;
  /// The oldest order that the template has not been sent.
  [[nodiscard]] std::optional<number> to_send() const noexcept;

  // ---- what happened ------------------------------------------------------------------------------------

  void sent(number order, steady_time now) noexcept;
  void executing() noexcept { at_ = stage::executing; }
  /// Returns false if no worker waits for the template any more; kill it then.
  [[nodiscard]] bool executed() noexcept;
  /// The template could not be started. Returns the orders, which have ended.
  std::vector<number> not_executed();
  void ready() noexcept;

  enum class meaning : std::uint8_t {
    awaited,   ///< a start waited for this answer; the order is done
    given_up,  ///< the start of this worker was given up
    repeated   ///< the order was answered before: template and worker both answer
  };
  [[nodiscard]] meaning answered(number order, steady_time now);
  /// The template must not fork. Returns the orders whose workers must now start with exec.
  std::vector<number> declined();

  /// The template has ended and all its answers are known.
  struct ending {
    std::vector<number> lost;  ///< orders that ended with it
    bool counts = true;  ///< whether the end counts as a failure of the template, not only of its workers
  };
  ending ended();
  /// Call after an end: sets when the next template may be started.
  void execute_from(steady_time when) noexcept { next_ = when; }

 private:
  struct order {
    number id = 0;
    std::uint32_t worker = 0;
    bool sent = false;
    bool given_up = false;  // given up after the order was sent, so an answer may still arrive
  };

  [[nodiscard]] bool anybody_waits() const noexcept;

  std::deque<order> orders_;  // not answered yet, oldest first
  stage at_ = stage::absent;
  number last_ = 0;
  steady_time silent_since_{};  // while orders are unanswered: when the last answer arrived, or the first order was sent
  steady_time next_{};     // when the next template may be started
  // The template's end counted as a failure, so start the next template before a worker needs it.
  bool replace_ = false;
  bool unneeded_ = false;  // the template was killed because no worker waited for it
};

}  // namespace penstock::process
