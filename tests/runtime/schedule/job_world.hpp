// A simulated world for the job book: workers that run rows one by one, tables that they write, messages in transit, a session that carries
// out commands, callers that keep results and cancel jobs. It tracks independently where each job runs and how it must end, and throws a
// violation when the book disagrees. Used by job_book_model_test.cpp.
#pragma once

#include "runtime/schedule/job_book.hpp"
#include "tests/runtime/schedule/random_scripts.hpp"

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace penstock::testing {

using namespace std::chrono_literals;
using schedule::job_death;
using row_at = schedule::row_reading::state;

// clang-format off
enum class job_act : std::uint8_t { submit, work, deliver, start, kill, blameless_kill, watch, cancel, release, drain,
                                    impossible, late, pause, give_probations_up, add_place, count };
inline constexpr const char* job_act_names[] = {"submit", "work", "deliver", "start", "kill", "blameless_kill", "watch",
                                                "cancel", "release", "drain", "impossible", "late", "pause",
                                                "give_probations_up", "add_place"};
// clang-format on
static_assert(std::size(job_act_names) == static_cast<std::size_t>(job_act::count));

struct job_world_settings {
  std::uint32_t workers = 1;
  std::uint32_t slots = 1;
  std::uint32_t rows_max = 4;
  std::uint32_t max_attempts = 3;
  std::uint64_t jobs = 40;            ///< at most
  std::uint32_t odd_jobs = 30;        ///< percentage that kill, throw, hang ...
  std::uint32_t fresh_jobs = 5;       ///< of 100
  std::uint32_t placed_jobs = 10;     ///< of 100
  std::uint64_t salt = 0;             ///< selects which jobs these are
  bool outside_kills_blame = false;   ///< kills from outside are blamed on the current job
  bool deaths_unreported = false;     ///< an injected bug: the book is not told of deaths
};

/// Coverage: how often each situation occurred, over all scripts.
struct job_world_tally {
  std::map<schedule::job_end, std::uint64_t> ends;
  std::uint64_t bundles = 0, probations = 0, ahead = 0, fresh = 0, placed = 0, elsewhere = 0, revoked = 0,
                ended = 0, refreshed = 0, emptied = 0, blamed = 0, late = 0;
};

/// The result of a job, and its reported run time.
[[nodiscard]] std::uint64_t result_of(schedule::job_id job);
[[nodiscard]] nanoseconds time_of(std::uint32_t function);

inline void must(bool holds, const char* otherwise) {
  if (!holds) throw violation{otherwise};
}

class job_world {
 public:
  static constexpr std::uint32_t sacrificial_place = 100;
  static constexpr schedule::job_book_settings slots_of_4k{3, 4, 1ms, 1ms, 25ms, 4096, 64, 64};

  job_world(const job_world_settings& settings, job_world_tally& tally);
  void perform(step<job_act> s);
  /// No more faults: everything must be settled in a bounded number of steps.
  void finish();

 private:
  enum class kind : std::uint8_t { plain, killer, killer_once, overwriter, thrower, too_large, hanging };

  struct job_state {
    schedule::job_request request;
    kind what = kind::plain;
    bool keeps = false;  // the job's result is large, so it stays in its slot
    bool waiting = true;
    bool running = false;
    bool ending = false;     // cancelled while the job ran
    bool cancelled = false;  // cancelled before the job started
    bool leased_before = false;
    bool may_leave = false;  // the job's place took no work for a while
    std::uint32_t begun = 0;
    std::uint32_t blamed = 0;
    std::optional<std::uint32_t> died_of_it;
    steady_time died_at{};
    std::optional<schedule::job_end> fate;  // the outcome, if a death decided it
    bool settled = false;
  };

  struct cell {
    schedule::job_id job = 0;
    row_at at = row_at::waiting;
    bool overwritten = false;
    bool seen = false;  // the book has read that the row was started
    steady_time begun{};
    std::uint64_t result = 0;
  };
  struct table {
    lease_ref lease;
    std::vector<cell> rows;
    std::uint32_t kept = 0;    // results that callers have not freed
    std::uint32_t pinned = 0;  // kept results that cannot be copied out
    bool asked_empty = false;  // an empty_slot was emitted
  };

  struct place {
    std::uint32_t incarnation = 0;
    bool alive = false;
    bool draining = false;
    bool doomed = false;      // an end_worker was emitted
    bool refreshing = false;  // a refresh_worker was emitted
    std::uint32_t given = 0;  // leases
    std::uint32_t begun = 0;  // rows
    std::deque<lease_ref> leases;
    std::uint32_t next_row = 0;  // the next row of the first lease
  };

  struct message {
    lease_ref lease;
    std::uint32_t passed = 0;
  };

  // The callers.
  void submit();
  void cancel(std::uint32_t pick);
  void release(std::uint32_t pick);

  // The workers.
  void start(std::uint32_t number);
  void work(std::uint32_t number, bool tells);
  void begin(std::uint32_t number, cell& c);
  void finish_row(std::uint32_t number, cell& c);
  void die(std::uint32_t number, job_death how);
  [[nodiscard]] cell* running_on(std::uint32_t number);
  void lose(cell& c, std::uint32_t number, bool was_running, job_death how);
  [[nodiscard]] std::uint32_t pick_place(std::uint32_t pick) const;

  // The session.
  void come_to_rest();
  void carry_out(const std::vector<schedule::job_command>& commands);
  void take(const schedule::lease_jobs& order);
  void check_lease(const schedule::lease_jobs& order, const place& p);
  void check_row(const schedule::lease_jobs& order, const schedule::leased_job& row, const place& p);
  void take(const schedule::revoke_row& order);
  void take(const schedule::settle_job& end);
  void check_end(const schedule::settle_job& end, const job_state& job);
  void check_result(const schedule::settle_job& end, const job_state& job);
  void take(const schedule::end_worker& order);
  void take(const schedule::refresh_worker& order);
  [[nodiscard]] bool takes_work(std::uint32_t number) const;
  void see_who_may_leave();
  void take(const schedule::empty_slot& order);
  void look_at(const lease_ref& lease);
  void deliver(std::uint32_t pick);
  void watch(std::uint32_t number);
  void drain(std::uint32_t number, bool after_current_batch);
  void say_what_cannot_be(std::uint32_t number, std::uint32_t pick);
  void say_it_late(std::uint32_t pick);
  [[nodiscard]] schedule::lease_reading read(const lease_ref& lease, std::uint32_t first,
                                             std::uint32_t end) const;
  [[nodiscard]] bool revoke(const lease_ref& lease, std::uint32_t row);

  // Invariants that hold when there is no work left.
  void check_rest() const;
  void check_idle(std::uint32_t number, const place& p) const;
  [[nodiscard]] bool idle(std::uint32_t number, const place& p) const;
  [[nodiscard]] bool has_untold_news(std::uint32_t number) const;
  [[nodiscard]] bool has_free_slot(std::uint32_t number) const;
  [[nodiscard]] bool anyone_but(std::uint32_t number) const;
  [[nodiscard]] bool is_ordinary(const job_state& job) const;
  [[nodiscard]] bool is_isolated(const job_state& job) const;

  [[nodiscard]] job_state& at(schedule::job_id job) { return jobs_[job - 1]; }
  [[nodiscard]] const job_state& at(schedule::job_id job) const { return jobs_[job - 1]; }

  job_world_settings settings_;
  job_world_tally& tally_;
  schedule::job_book books_;
  steady_time now_{100s};
  std::vector<job_state> jobs_;
  std::map<std::uint32_t, place> places_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, table> memory_;   // by place and slot
  std::map<std::uint32_t, std::optional<steady_time>> absent_since_;  // by place: since when it takes no work
  std::deque<message> in_transit_;
  std::deque<message> heard_;  // the last delivered messages, which may arrive again
  std::set<schedule::job_id> waiting_ordinary_;
  std::set<schedule::job_id> leasable_;  // waiting_ordinary_ at the time of the current commands
  bool paused_ = false;
  bool probations_given_up_ = false;
};

}  // namespace penstock::testing
