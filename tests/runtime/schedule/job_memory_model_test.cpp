// Model test of [jobs] memory: the job book starts jobs and the bounds admit them while callers take results
// in any order, keep some of them and retry failed jobs, and workers die. A failing script is shrunk and
// printed.
#include "runtime/schedule/job_bounds.hpp"
#include "tests/runtime/schedule/random_scripts.hpp"

#include <catch2/catch_test_macros.hpp>

#include <deque>
#include <map>
#include <set>

using namespace penstock;
using namespace penstock::schedule;
using namespace penstock::testing;
using namespace std::chrono_literals;

namespace {

using row_at = row_reading::state;

enum class act : std::uint8_t { submit, work, consume, kill, try_again, look, count };
constexpr const char* act_names[] = {"submit", "work", "consume", "kill", "try_again", "look"};

enum class consumer : std::uint8_t { in_order, any_order, keeps_all };

struct memory_settings {
  std::uint32_t workers = 2;
  std::uint32_t slots = 2;
  std::uint64_t memory = 1000;
  std::uint64_t queue = 20;
  std::uint32_t largest = 400;  ///< result
  std::uint32_t keeps =
      0;  ///< percentage of results that the caller keeps permanently, up to an eighth of the memory
  consumer how = consumer::in_order;
  std::uint64_t salt = 0;
  bool unlimited = false;     ///< an injected bug: the book does not know the memory
  bool frees_untold = false;  ///< an injected bug: freed results are not counted
};

struct memory_tally {
  std::uint64_t held_back = 0, first_begun = 0, woken = 0, urgent = 0, own_waits = 0, emptied = 0,
                refused = 0;
};

void must(bool holds, const char* otherwise) {
  if (!holds) throw violation{otherwise};
}

class memory_world {
 public:
  static constexpr std::uint32_t alone = 100;
  static constexpr job_bounds::thread_number caller = 7;

  memory_world(const memory_settings& s, memory_tally& tally)
      : s_(s), tally_(tally), bounds_(s.queue, s.memory), book_(rules()) {
    if (!s.unlimited) book_.set_results_before([this](job_id job) { return before(job); });
    for (std::uint32_t w = 0; w < s.workers; ++w) start(w);
  }

  void perform(step<act> one) {
    if (one.what != act::consume) now_ += 10ms;
    switch (one.what) {
      case act::submit: submit(one.pick); break;
      case act::work: work(one.pick % s_.workers); break;
      case act::consume: consume(one.pick); break;
      case act::kill: kill(one.pick % s_.workers); break;
      case act::try_again: again_ = one.pick; break;
      case act::look: check_waits(); break;
      case act::count: break;
    }
    decide();
  }

  /// No more deaths: a caller that frees its results gets every outcome; one that does not gets an error.
  void finish() {
    const std::size_t bound = 200 + 60 * jobs_.size();
    for (std::size_t i = 0; left() > 0; ++i) {
      must(i < bound, "deadlock: no event is left");
      now_ += 200ms;
      if (book_.wants_sacrificial() && !workers_[alone].alive) start(alone);
      for (auto& [number, w] : workers_) {
        work(number);
        decide();
      }
      const bool took = consume(0);
      decide();
      if (took || s_.how != consumer::keeps_all || running() > 0 || !book_.lacks_memory()) continue;
      return check_own_wait();
    }
    if (s_.how != consumer::keeps_all) must(bounds_.arguments() == 0, "arguments without a job are counted");
  }

 private:
  struct job_state {
    std::uint32_t function = 0;
    std::uint64_t argument = 0;
    bool urgent = false;
    bool ended = false;
    bool taken = false;
    bool in_slot = false;
    lease_ref lease;
    std::optional<job_bounds::holding> held;
  };
  struct lease_state {
    lease_ref lease;
    std::vector<std::pair<job_id, row_at>> rows;
  };
  struct worker_state {
    std::uint32_t incarnation = 0;
    bool alive = false;
    std::deque<lease_state> leases;
  };

  static job_book_settings rules() {
    job_book_settings r{3, 4, 1ms, 1ms, 25ms, 4096, 64, 64};
    return r;
  }
  job_state& at(job_id job) { return jobs_[job - 1]; }
  /// Each function always returns the same size; the first one's results stay in their slots.
  [[nodiscard]] std::uint64_t size_of(std::uint32_t function) const {
    return 1 + (s_.salt >> (8 * function)) % s_.largest;
  }
  [[nodiscard]] std::uint64_t before(job_id job) {
    std::uint64_t sum = 0;
    for (job_id j = 1; j < job && j <= jobs_.size(); ++j) sum += at(j).held ? size_of(at(j).function) : 0;
    must(bounds_.results_before(job) == sum, "the results before a job are miscounted");
    return sum;
  }
  [[nodiscard]] std::uint64_t running() const { return book_.unsettled() - book_.waiting(); }
  [[nodiscard]] std::uint64_t left() const {
    std::uint64_t all = book_.unsettled();
    for (const job_state& job : jobs_) all += job.ended && !job.taken ? 1 : 0;
    return all;
  }

  // The callers.

  void submit(std::uint32_t pick, bool urgent = false) {
    if (jobs_.size() >= 400) return;
    const std::uint64_t argument = pick % 5 == 0 ? pick % 97 : 0;
    if (!bounds_.possible(argument)) return;
    if (!bounds_.admits(argument, urgent ? submitter::urgent : submitter::caller)) {
      ++tally_.refused;
      bounds_.asks();
      bounds_.asked(now_);
      return;
    }
    woken_ = true;
    bounds_.entered(argument);
    tally_.urgent += urgent ? 1 : 0;
    job_state job;
    job.function = pick % 3;
    job.argument = argument;
    job.urgent = urgent;
    jobs_.push_back(job);
    job_request request{.job = jobs_.size(), .function = job.function, .argument_bytes = argument};
    request.urgent = urgent;
    book_.submit(request);
  }

  /// Takes one result, if the next is there.
  bool consume(std::uint32_t pick) {
    job_id next = 0;
    for (job_id j = 1; j <= jobs_.size(); ++j) {
      const job_id one = s_.how == consumer::any_order ? 1 + (pick + j) % jobs_.size() : j;
      if (at(one).taken) continue;
      if (at(one).ended) next = one;
      if (next != 0 || s_.how != consumer::any_order) break;
    }
    if (next == 0) return false;
    job_state& job = at(next);
    job.taken = true;
    if (again_ && s_.how == consumer::in_order) submit(*std::exchange(again_, std::nullopt), true);
    const bool keeps = s_.how == consumer::keeps_all ||
                       (next * 31 % 100 < s_.keeps && kept_ + size_of(job.function) <= s_.memory / 8);
    if (job.held) (*job.held)->owner = caller;
    if (keeps) {
      kept_ += size_of(job.function);
      return true;
    }
    free(job);
    return true;
  }

  void free(job_state& job) {
    if (std::exchange(job.in_slot, false)) {
      book_.result_gone(job.lease);
      woken_ = true;
    }
    if (!job.held) return;
    if (!s_.frees_untold) bounds_.freed(*job.held);
    job.held.reset();
    sleeps_ = bounds_.freed() < wake_at_ && !woken_;
    tally_.woken += wake_at_ > 0 && !sleeps_ ? 1 : 0;
  }

  // The workers.

  void start(std::uint32_t number) {
    worker_state& w = workers_[number];
    w.alive = true;
    book_.worker_joined({number, ++w.incarnation}, number == alone ? 1 : s_.slots, number == alone);
    woken_ = true;
  }

  void work(std::uint32_t number) {
    worker_state& w = workers_[number];
    if (!w.alive) return number == alone ? void() : start(number);
    if (w.leases.empty()) return;
    woken_ = true;
    lease_state& lease = w.leases.front();
    const auto open = [](const auto& row) {
      return row.second == row_at::waiting || row.second == row_at::begun;
    };
    const auto next = std::ranges::find_if(lease.rows, open);
    if (next != lease.rows.end())
      next->second = next->second == row_at::waiting ? row_at::begun : row_at::finished;
    const bool last = std::ranges::none_of(lease.rows, open);
    must(book_.reported(read(lease)) != job_arrival::impossible, "a true report is called impossible");
    if (last) w.leases.pop_front();
  }

  void kill(std::uint32_t number) {
    worker_state& w = workers_[number];
    if (!w.alive) return;
    std::vector<lease_reading> last;
    for (const lease_state& lease : w.leases) {
      last.push_back(read(lease));
      for (const auto& [job, state] : lease.rows) open_.erase(job);
    }
    w.alive = false;
    w.leases.clear();
    woken_ = true;
    static_cast<void>(book_.worker_died({number, w.incarnation}, last, "SIGKILL", job_death::of_the_job, now_));
  }

  lease_reading read(const lease_state& lease) {
    lease_reading all{lease.lease, {}, 0};
    for (const auto& [job, state] : lease.rows) {
      const bool finished = state == row_at::finished;
      const bool in_slot = at(job).function == 0;
      all.rows.push_back(
          {state, finished && in_slot, now_, 5ms, finished && !in_slot ? size_of(at(job).function) : 0});
    }
    return all;
  }

  // The session.

  /// Decides as the job scheduler does. If too little was freed and there was no other event, no job may start.
  void decide() {
    const bool woken = std::exchange(woken_, false);
    const bool too_early = std::exchange(sleeps_, false) && !woken;
    for (int round = 0;; ++round) {
      must(round < 100, "the book does not come to rest");
      const std::uint64_t freed = bounds_.freed();
      book_.set_memory(bounds_.results(), bounds_.room_for_results(), s_.memory);
      const auto commands = book_.advance(now_);
      bool moved = false;
      for (const job_command& c : commands) {
        if (const auto* const order = std::get_if<lease_jobs>(&c)) {
          must(!too_early || round > 0, "a job starts although the missing memory was not freed");
          take(*order);
        } else if (const auto* const end = std::get_if<settle_job>(&c)) {
          take(*end);
        } else if (const auto* const row = std::get_if<revoke_row>(&c)) {
          take(*row);
        } else if (const auto* const slot = std::get_if<empty_slot>(&c)) {
          empty(slot->lease);
        }
        moved = true;
      }
      const auto lack = book_.lacks_memory();
      tally_.held_back += lack ? 1 : 0;
      bounds_.decided(running(), lack ? std::optional(lack->first) : std::nullopt);
      wake_at_ = lack ? freed + lack->bytes : 0;
      if (!moved) break;
    }
    const std::uint64_t overshoot = std::uint64_t{s_.largest} * 4 * (s_.workers * s_.slots + 1);
    std::uint64_t urgent = 0;  // how far callers may exceed the limit with urgent jobs
    for (const job_state& job : jobs_) urgent += job.urgent && job.held ? size_of(job.function) : 0;
    must(s_.frees_untold || bounds_.results() <= s_.memory + overshoot + urgent, "the memory in use exceeds every bound");
  }

  void take(const lease_jobs& order) {
    std::uint64_t begun = 0;
    lease_state lease{order.lease, {}};
    for (const leased_job& row : order.rows) {
      begun += row.first ? 1 : 0;
      check_room(row.job);
      lease.rows.emplace_back(row.job, row_at::waiting);
      if (known_.size() == 3) open_.insert(row.job);
    }
    workers_[order.lease.holder.worker].leases.push_back(std::move(lease));
    if (begun > 0) bounds_.begun(begun);
  }

  /// The book's guarantees, once it knows the result size of each function.
  void check_room(job_id job) {
    if (known_.size() < 3 || at(job).urgent) return;
    const auto elsewhere = [this](job_id one) {
      return at(one).function == 0 ? 0 : size_of(at(one).function);
    };
    std::uint64_t taken = bounds_.results() + elsewhere(job);
    for (const job_id one : open_) taken += at(one).urgent ? 0 : elsewhere(one);
    const std::uint64_t room = bounds_.room_for_results();
    if (taken <= room) return;
    for (job_id earlier = 1; earlier < job; ++earlier)
      must(at(earlier).ended, "a job without room starts although it is not the first");
    const std::uint64_t older = before(job);
    must(older == 0 || older + elsewhere(job) <= s_.memory,
         "a job begins though those before it leave no room");
    ++tally_.first_begun;
  }

  void take(const settle_job& end) {
    job_state& job = at(end.job);
    must(!job.ended, "a job is settled twice");
    job.ended = true;
    open_.erase(end.job);
    bounds_.ended(job.argument);
    if (end.never_leased) bounds_.begun(1);
    if (end.how != job_end::result) return;
    known_.insert(job.function);
    job.lease = end.at->lease;
    if (end.keeps_slot) {
      job.in_slot = true;
    } else {
      job.held = bounds_.kept(end.job, size_of(job.function));
    }
  }

  void take(const revoke_row& order) {
    worker_state& w = workers_[order.lease.holder.worker];
    for (lease_state& lease : w.leases) {
      if (lease.lease != order.lease || lease.rows[order.row].second != row_at::waiting) continue;
      lease.rows[order.row].second = row_at::revoked;
      open_.erase(order.job);
      book_.row_revoked(order.lease, order.row);
    }
  }

  void empty(const lease_ref& lease) {
    for (job_id j = 1; j <= jobs_.size(); ++j) {
      if (!at(j).in_slot || at(j).lease != lease) continue;
      at(j).in_slot = false;
      at(j).held = bounds_.kept(j, size_of(at(j).function));
      if (at(j).taken) (*at(j).held)->owner = caller;
      book_.result_gone(lease);
      ++tally_.emptied;
    }
  }

  // Waits.

  void check_waits() {
    if (running() > 0)
      must(!bounds_.callers_hold_everything(now_), "callers are reported to hold all memory while jobs run");
    must(!bounds_.waits_for_itself(caller + 1, now_) || bounds_.results() == 0,
         "a thread that has no result waits for itself");
  }

  /// The caller has all results, and no job runs.
  void check_own_wait() {
    ++tally_.own_waits;
    must(bounds_.callers_hold_everything(now_), "no caller is reported to hold the memory that the next job lacks");
    bounds_.entered(0);  // a change
    bounds_.begun(1);
    must(!bounds_.waits_for_itself(caller, now_), "an error comes right after a change");
    for (const steady_time due = now_ + job_bounds::patience; now_ < due;) {
      now_ += job_bounds::look_every;
      must(!bounds_.waits_for_itself(caller, now_), "an error comes too early");
    }
    now_ += job_bounds::look_every;
    must(!bounds_.waits_for_itself(caller + 1, now_), "another thread gets the error");
    must(bounds_.waits_for_itself(caller, now_), "a thread waits for itself forever, without an error");
  }

  const memory_settings s_;
  memory_tally& tally_;
  job_bounds bounds_;
  job_book book_;
  steady_time now_{100s};
  std::deque<job_state> jobs_;
  std::map<std::uint32_t, worker_state> workers_;
  std::set<job_id> open_;          // jobs leased when all functions were known, and not settled
  std::set<std::uint32_t> known_;  // functions
  std::optional<std::uint32_t> again_;
  std::uint64_t kept_ = 0;
  std::uint64_t wake_at_ = 0;
  bool sleeps_ = false;  // whether fewer bytes were freed than were missing
  bool woken_ = false;   // whether another event has happened since
};

memory_settings random_settings(random_choice& choose) {
  memory_settings s;
  s.workers = 1 + choose.below(4);
  s.slots = 1 + choose.below(3);
  s.memory = 400 + choose.below(2000);
  s.queue = 1 + choose.below(60);
  s.largest = 1 + choose.below(choose.below(2) == 0 ? 30 : 350);
  s.how = static_cast<consumer>(choose.below(3));
  s.keeps = choose.below(3) * 20;
  s.salt = (std::uint64_t{choose.below(1U << 30U)} << 30U) + choose.below(1U << 30U);
  return s;
}

script_of<act> random_script(random_choice& choose) {
  const std::uint32_t busy = 1 + choose.below(4);
  script_of<act> made(50 + choose.below(350));
  for (auto& one : made) {
    one.what = static_cast<act>(choose.below(static_cast<std::uint32_t>(act::count)));
    if (choose.below(3) != 0)
      one.what = choose.below(busy) == 0 ? act::consume : choose.below(2) == 0 ? act::submit : act::work;
    one.pick = choose.below(10'000);
  }
  return made;
}

std::string describe(const memory_settings& s) {
  return fmt::format("workers {}, slots {}, memory {}, queue {}, largest {}, keeps {}, how {}, salt {}",
                     s.workers, s.slots, s.memory, s.queue, s.largest, s.keeps, static_cast<int>(s.how),
                     s.salt);
}

testing::model<act, memory_settings> model_that_counts(memory_tally& tally) {
  return {.name = "job memory model",
          .act_names = act_names,
          .random_script = random_script,
          .random_settings = random_settings,
          .describe = describe,
          .run = [&tally](const memory_settings& settings, const script_of<act>& steps) {
            memory_world w(settings, tally);
            for (const auto& one : steps) w.perform(one);
            w.finish();
            return steps.size();
          }};
}

}  // namespace

TEST_CASE(
    "results stay within [jobs] memory, and only the jobs of a caller that keeps its results are blocked and get an error") {
  memory_tally tally;
  testing::explore(model_that_counts(tally));
  for (const std::uint64_t often : {tally.held_back, tally.first_begun, tally.woken, tally.urgent,
                                    tally.own_waits, tally.emptied, tally.refused})
    CHECK(testing::is_tried(often, 300));
}

TEST_CASE("the model of memory finds injected bugs") {
  memory_tally tally;
  const auto model = model_that_counts(tally);
  constexpr std::uint64_t sizes = 300U | (200U << 8U) | (250U << 16U);
  CHECK(testing::finds_a_mistake(model, {.salt = sizes, .unlimited = true}));
  CHECK(testing::finds_a_mistake(model, {.salt = sizes, .frees_untold = true}));
}
