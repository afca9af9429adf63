// The pool and the ledger together, as the supervisor and the scheduler drive them, in a simulated world of
// processes, time, operators and a device: starts that fail, deaths at any moment, processes that survive
// SIGKILL, samples that kill, backoff, canaries, isolation, a sacrificial worker that never comes up, every
// restart type, scaling, draining, restarts. Invariants are checked after every step against the world's own
// records. After each script the stream must reach its end without an operator, unless an operator emptied
// the pool or it has failed with a reason. A failing script is shrunk and printed.
#include "runtime/schedule/ledger.hpp"
#include "runtime/supervision/pool.hpp"
#include "tests/runtime/schedule/random_scripts.hpp"
#include "tests/runtime/schedule/small_plan.hpp"
#include "tests/runtime/supervision/pool_record.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <deque>
#include <map>
#include <set>

using namespace penstock;
using namespace penstock::schedule;
using namespace penstock::supervision;
using namespace std::chrono_literals;
using testing::random_choice;
using testing::sacrificial_place;
using testing::small_plan;
using testing::violation;
using testing::workers_max;

namespace {

// clang-format off
enum class act : std::uint8_t { tick, get_ready, fail_to_start, work, report, kill, exit_0, wedge, copy, acknowledge,
                                kill_owner, kill_idle, scale, drain, drain_backoff, restart, recycle, pause, count };
constexpr const char* act_names[] = {"tick", "get_ready", "fail_to_start", "work", "report", "kill", "exit_0", "wedge",
                                     "copy", "acknowledge", "kill_owner", "kill_idle", "scale", "drain",
                                     "drain_backoff", "restart", "recycle", "pause"};
// clang-format on

using step = testing::step<act>;
using script = testing::script_of<act>;

struct world_settings {
  std::uint32_t workers = 1;
  std::uint32_t slots = 1;
  std::uint64_t samples = 1;
  std::uint32_t batch_size = 1;
  std::uint64_t epochs = 1;
  std::uint32_t intensity = 5;
  restart_type type = restart_type::permanent;
  bool sacrificial_fails = false;  // dataset setup fails in the sacrificial worker
  std::set<std::uint64_t> killers;
  std::set<std::uint64_t> killers_once;
  bool deaths_untold = false;  // an injected bug: the pool is not told of deaths
};

class world {
 public:
  explicit world(world_settings settings)
      : settings_(std::move(settings)),
        plan_(settings_.samples, settings_.batch_size),
        end_(plan_.batches() * settings_.epochs),
        books_({3, 1000, bad_sample_rule::skip}, plan_, {0, end_}),
        pool_(pool_settings_of(settings_)),
        record_(settings_.workers, settings_.intensity, settings_.type) {
    pool_.open(now_);
    settle();
  }

  void run(const script& steps_to_do) {
    for (const step& s : steps_to_do) {
      ++steps_;
      perform(s);
      settle();
      if (gave_up_) return;
    }
    finish();
  }

  [[nodiscard]] std::size_t steps() const { return steps_; }
  [[nodiscard]] bool gave_up() const { return gave_up_; }

 private:
  struct held_lease {
    load_command load;
    std::uint32_t next_row = 0;
    std::vector<std::uint64_t> written;
  };

  struct process {
    worker_ref who;
    bool ready = false;
    bool draining = false;
    bool wedged = false;  // the process survives SIGKILL
    std::uint64_t done = 0;
    std::deque<held_lease> leases;
  };

  static pool_settings pool_settings_of(const world_settings& from) {
    pool_settings s;
    s.workers = from.workers;
    s.restart.intensity_max = from.intensity;
    s.restart.type = from.type;
    s.sacrificial_place = sacrificial_place;
    s.seed = 7;
    return s;
  }

  // ---- steps

  void perform(const step& s) {
    switch (s.what) {
      case act::tick: now_ += std::chrono::milliseconds(1 + s.pick * s.pick / 40); break;
      case act::get_ready: get_ready(chosen(s.pick)); break;
      case act::fail_to_start: fail_to_start(chosen(s.pick)); break;
      case act::work: work(chosen(s.pick)); break;
      case act::report: report(s.pick); break;
      case act::kill: kill(chosen(s.pick)); break;
      case act::exit_0: exit_0(chosen(s.pick)); break;
      case act::wedge: wedge(chosen(s.pick)); break;
      case act::copy: copy(); break;
      case act::acknowledge: acknowledge(); break;
      case act::kill_owner: kill_owner(); break;
      case act::scale: scale(1 + s.pick % workers_max); break;
      case act::drain: drain(s.pick % (workers_max + 1)); break;
      case act::kill_idle: kill_idle(); break;
      case act::drain_backoff: drain_backoff(s.pick); break;
      case act::restart: restart(s.pick % (workers_max + 1)); break;
      case act::recycle: recycle(chosen(s.pick)); break;
      case act::pause: books_.set_paused(s.pick % 3 == 0); break;
      case act::count: break;
    }
  }

  process* chosen(std::uint32_t pick) {
    if (processes_.empty()) return nullptr;
    return &std::next(processes_.begin(), pick % processes_.size())->second;
  }

  void get_ready(process* p) {
    if (p == nullptr || p->ready || p->wedged) return;
    const bool alone = p->who.worker == sacrificial_place;
    if (alone && settings_.sacrificial_fails) return p->who.incarnation % 2 == 0 ? fail_to_start(p) : kill(p);
    p->ready = true;
    pool_.child_ready(p->who, now_);
    books_.worker_joined(p->who, alone ? 1 : settings_.slots,
                         alone ? worker_kind::sacrificial : worker_kind::loader);
    if (p->draining) books_.worker_drains(p->who);
  }

  void fail_to_start(process* p) {
    if (p == nullptr || p->ready || p->wedged) return;
    const worker_ref who = p->who;
    record_.start_failed(who.worker, p->draining, now_);
    processes_.erase(who.worker);
    pool_.start_failed(who, now_, {errc::system, "no more processes", EAGAIN});
  }

  bool kills(const planned_sample& s) const {
    return settings_.killers.contains(s.sample) ||
           (settings_.killers_once.contains(s.sample) && s.attempt == 1);
  }

  void work(process* p) {
    if (p == nullptr || p->leases.empty() || p->wedged) return;
    held_lease& held = p->leases.front();
    if (held.next_row < held.load.samples.size()) {
      const planned_sample s = held.load.samples[held.next_row];
      if (kills(s))
        return die(*p, flight_mark{held.load.lease.slot, held.load.lease.generation, held.next_row});
      held.written.push_back(s.sample);
      ++held.next_row;
      ++p->done;
    }
    if (held.next_row < held.load.samples.size()) return;
    in_transit_.push_back({held.load.lease, static_cast<std::uint32_t>(held.written.size()), {}});
    p->leases.pop_front();
  }

  void report(std::uint32_t pick) {
    if (in_transit_.empty()) return;
    const worker_ref sender = in_transit_[pick % in_transit_.size()].lease.holder;
    const auto first =
        std::ranges::find_if(in_transit_, [&](const auto& r) { return r.lease.holder == sender; });
    const load_report what = *first;
    in_transit_.erase(first);
    const auto p = processes_.find(sender.worker);
    const bool lives = p != processes_.end() && p->second.who == sender && !p->second.wedged;
    if (books_.loaded(what) != (lives ? arrival::accepted : arrival::late))
      throw violation{"a report was not accepted, or a late one was"};
  }

  // The sacrificial worker is not killed during a probation: its death would quarantine the sample.
  static bool tries_a_sample(const process& p) {
    return p.who.worker == sacrificial_place && !p.leases.empty();
  }

  static std::optional<flight_mark> mark_of(const process& p) {
    if (p.leases.empty()) return std::nullopt;
    const held_lease& held = p.leases.front();
    if (held.next_row == 0 || held.next_row >= held.load.samples.size()) return std::nullopt;
    return flight_mark{held.load.lease.slot, held.load.lease.generation, held.next_row};
  }

  // A kill from outside, at any time.
  void kill(process* p) {
    if (p != nullptr && !tries_a_sample(*p)) die(*p, mark_of(*p));
  }

  // A common cause: it kills half the pool or more at once.
  void kill_idle() {
    std::vector<worker_ref> idle;
    for (const auto& [number, p] : processes_) {
      if (p.done == 0 && number != sacrificial_place) idle.push_back(p.who);
    }
    for (const worker_ref who : idle) kill(&processes_.at(who.worker));
  }

  // Operators drain places in trouble, for example one that waits for its restart, possibly the canary.
  void drain_backoff(std::uint32_t pick) {
    std::vector<std::uint32_t> waiting;
    for (const place_view& v : pool_.places()) {
      if (v.state == child_state::backoff && v.worker != sacrificial_place) waiting.push_back(v.worker);
    }
    if (!waiting.empty()) drain(waiting[pick % waiting.size()]);
  }

  // The process exits by itself, between samples.
  void exit_0(process* p) {
    if (p != nullptr && !p->wedged && !tries_a_sample(*p)) die(*p, std::nullopt, death::how::normal);
  }

  // The process survives SIGKILL; others load its leases.
  void wedge(process* p) {
    if (p == nullptr || p->wedged || tries_a_sample(*p)) return;
    pool_.child_unkillable(p->who, "no heartbeat");
    if (p->ready) {
      const auto blamed = books_.worker_died(p->who, mark_of(*p), "unkillable");
      if (blamed) ++blamed_[{plan_.epoch_of(blamed->position), blamed->sample}];
    }
    p->wedged = true;
    record_.wedged(p->who.worker);
    p->leases.clear();
  }

  void recycle(process* p) {
    if (p != nullptr && !p->wedged) pool_.recycle(p->who);
  }

  void die(process& p, std::optional<flight_mark> mark, death::how how = death::how::abnormal) {
    const process gone = p;
    processes_.erase(gone.who.worker);
    std::optional<blame> blamed;
    if (gone.ready) blamed = books_.worker_died(gone.who, mark, "SIGSEGV");
    if (mark && !blamed && !quarantined_.contains(gone.leases.front().load.samples[mark->row].sample))
      throw violation{"a death during a sample was blamed on no sample"};
    if (blamed) ++blamed_[{plan_.epoch_of(blamed->position), blamed->sample}];
    if (settings_.deaths_untold) return;
    const bool fruitful = gone.ready && gone.done > 0;
    record_.died(gone.who.worker, gone.draining, how, !blamed && !fruitful, now_);
    pool_.child_died(gone.who, now_, {how, blamed.has_value(), fruitful}, "SIGSEGV", "");
  }

  void leave(process& p) {
    const worker_ref who = p.who;
    processes_.erase(who.worker);
    books_.worker_died(who, std::nullopt, "exit 0");
    pool_.child_died(who, now_, {death::how::operated, false, true}, "exit 0", "");
  }

  void scale(std::uint32_t workers) {
    record_.scaled(workers);
    pool_.scale(workers, now_);
  }
  void drain(std::uint32_t worker) {
    const auto is_its = [&](const place_view& v) { return v.worker == worker; };
    if (worker < workers_max && std::ranges::any_of(pool_.places(), is_its)) record_.drained(worker);
    pool_.drain(worker);
  }
  void restart(std::uint32_t worker) {
    record_.restarted(worker);
    pool_.restart(worker, now_);
  }

  // ---- the device and the consumer

  void copy() {
    for (std::size_t i = 0; i < uploads_.size(); ++i) {
      if (copied_[i]) continue;
      copied_[i] = true;
      books_.slot_released(uploads_[i].upload);
      return;
    }
  }

  void acknowledge() {
    if (uploads_.empty() || !copied_.front()) return;
    const upload_command upload = uploads_.front();
    uploads_.pop_front();
    copied_.pop_front();
    const auto done = books_.acknowledged(upload.upload);
    if (!done || done->position != delivered_)
      throw violation{"a batch was delivered twice, or out of order"};
    ++delivered_;
    std::vector<std::uint64_t> expected;
    bool lost_for_a_reason = true;
    for (const std::uint64_t sample : plan_.samples(upload.position)) {
      if (std::ranges::find(upload.samples, sample) != upload.samples.end()) {
        expected.push_back(sample);
      } else {
        lost_for_a_reason &= quarantined_.contains(sample);
      }
    }
    if (!lost_for_a_reason || expected != upload.samples)
      throw violation{"a batch does not have the samples of its plan"};
    if (done->delivered + done->quarantined != plan_.samples(upload.position).size())
      throw violation{"the sum is wrong"};
  }

  void kill_owner() {
    books_.owner_died();
    uploads_.clear();
    copied_.clear();
    next_upload_ = delivered_;
  }

  // ---- after every step: carry out commands of both until there are none

  void settle() {
    for (int round = 0; round < 20; ++round) {
      bool quiet = true;
      if (std::exchange(probation_wanted_, books_.wants_sacrificial()) != books_.wants_sacrificial())
        record_.probation_changed();
      pool_.want_sacrificial(books_.wants_sacrificial(), now_);
      for (const pool_command& c : pool_.advance(now_)) {
        quiet = false;
        if (const auto* start = std::get_if<start_child>(&c)) take_start(*start);
        if (const auto* order = std::get_if<drain_child>(&c)) take_drain(*order);
        if (const auto* end = std::get_if<sacrificial_failed>(&c)) {
          if (!books_.wants_sacrificial()) throw violation{"the pool gave up a sacrificial worker that was not wanted"};
          books_.cannot_try_alone(end->reason);
        }
        if (const auto* end = std::get_if<pool_failed>(&c)) {
          gave_up_ = true;
          record_.check_failure(end->reason, now_);
        }
      }
      for (const command& c : books_.advance()) {
        quiet = false;
        carry_out(c);
      }
      for (auto it = processes_.begin(); it != processes_.end();) {
        process& p = (it++)->second;
        const bool idle = p.leases.empty() && books_.leases_of(p.who.worker) == 0;
        if (p.draining && !p.wedged && (!p.ready || idle)) {
          leave(p);
          quiet = false;
        }
      }
      if (quiet) break;
      if (round == 19) throw violation{"pool and ledger never come to rest"};
    }
    testing::living_processes living;
    for (const auto& [place, p] : processes_) living[place] = {p.ready, p.wedged};
    record_.check_places(pool_.places(), living, now_);
  }

  void take_start(const start_child& start) {
    if (processes_.contains(start.who.worker)) throw violation{"two processes in one place"};
    record_.check_start(start, now_);
    processes_[start.who.worker] = {start.who, false, false, false, 0, {}};
  }

  void take_drain(const drain_child& order) {
    const auto p = processes_.find(order.who.worker);
    if (p == processes_.end() || p->second.who != order.who)
      throw violation{"a nonexistent worker is drained"};
    p->second.draining = true;
    if (p->second.ready) books_.worker_drains(order.who);
  }

  void carry_out(const command& c) {
    if (const auto* load = std::get_if<load_command>(&c)) take_lease(*load);
    if (const auto* upload = std::get_if<upload_command>(&c)) {
      if (upload->position != next_upload_++) throw violation{"an upload out of order"};
      uploads_.push_back(*upload);
      copied_.push_back(false);
    }
    if (const auto* lost = std::get_if<sample_quarantined>(&c)) {
      quarantined_.insert(lost->sample);
      const std::uint32_t deaths = blamed_[{plan_.epoch_of(lost->position), lost->sample}];
      const bool untried = lost->causes.back().starts_with("could not be tried alone") && deaths >= 2;
      if (!settings_.killers.contains(lost->sample) && deaths < 6 && !untried)
        throw violation{"wrongly quarantined"};
    }
    if (std::get_if<give_up>(&c) != nullptr) throw violation{"the ledger gave up"};
  }

  void take_lease(const load_command& load) {
    const auto p = processes_.find(load.lease.holder.worker);
    if (p == processes_.end() || p->second.who != load.lease.holder || !p->second.ready)
      throw violation{"a lease for a worker that is not ready"};
    if (p->second.draining) throw violation{"a lease for a draining worker"};
    const bool alone = load.lease.holder.worker == sacrificial_place;
    if (alone && load.samples.size() != 1) throw violation{"the sacrificial worker got more than one sample"};
    for (const planned_sample& s : load.samples) {
      if (!alone && s.attempt > 2) throw violation{"a third attempt runs outside the sacrificial worker"};
    }
    p->second.leases.push_back({load, 0, {}});
  }

  // No more faults and no operators: the stream ends, the pool fails with a reason, or it waits for the operator who emptied it, and
  // continues after a restart of the workers.
  void finish() {
    books_.set_paused(false);
    go_on();
    if (!gave_up_ && !books_.finished()) {
      if (!record_.operator_emptied_it()) throw violation{"the pool is stranded"};
      for (std::uint32_t w = 0; w < settings_.workers; ++w) restart(w);
      go_on();
    }
    if (gave_up_) return;
    if (!books_.finished()) throw violation{"the pool is stranded after a restart"};
    if (delivered_ != end_) throw violation{"some batches were not delivered"};
    everybody_comes_back();
  }

  // After the longest backoff no place still waits for a restart.
  void everybody_comes_back() {
    for (int i = 0; i < 40 && !gave_up_; ++i) {
      now_ += 1s;
      settle();
      for (std::uint32_t w = 0; w < workers_max; ++w) {
        const auto p = processes_.find(w);
        if (p != processes_.end()) get_ready(&p->second);
      }
    }
    for (const place_view& v : pool_.places()) {
      if (v.state == child_state::backoff && v.worker != sacrificial_place && !gave_up_)
        throw violation{"a place waits for a restart that never comes"};
    }
  }

  // Runs until the stream ends or no event is left.
  void go_on() {
    settle();
    const std::uint64_t bound = 6'000 + end_ * 80 * (settings_.batch_size + 4);
    for (std::uint64_t i = 0; !books_.finished() && !gave_up_; ++i) {
      const bool living = std::ranges::any_of(processes_, [](const auto& p) { return !p.second.wedged; });
      if (!living && in_transit_.empty() && uploads_.empty() && pool_.next_deadline() == never) return;
      if (i > bound) throw violation{"deadlock: no event is left"};
      now_ += 100ms;
      settle();
      for (std::uint32_t w = 0; w <= workers_max; ++w) {
        const auto p = processes_.find(w);
        if (p == processes_.end()) continue;
        if (!p->second.ready) {
          get_ready(&p->second);
        } else {
          work(&p->second);
        }
      }
      report(0);
      settle();
      copy();
      acknowledge();
      settle();
    }
  }

  world_settings settings_;
  small_plan plan_;
  stream_position end_;
  ledger books_;
  pool pool_;
  testing::pool_record record_;
  steady_time now_{};
  std::map<std::uint32_t, process> processes_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint32_t> blamed_;
  std::deque<load_report> in_transit_;
  std::deque<upload_command> uploads_;
  std::deque<bool> copied_;
  std::set<std::uint64_t> quarantined_;
  stream_position next_upload_ = 0;
  stream_position delivered_ = 0;
  std::size_t steps_ = 0;
  bool probation_wanted_ = false;
  bool gave_up_ = false;
};

world_settings random_settings(random_choice& choose) {
  world_settings s;
  s.workers = 1 + choose.below(6);
  s.slots = 1 + choose.below(3);
  s.samples = 1 + choose.below(40);
  s.batch_size = 1 + choose.below(4);
  s.epochs = 1 + choose.below(3);
  s.intensity = 1 + choose.below(6);
  constexpr restart_type types[] = {restart_type::permanent, restart_type::permanent, restart_type::transient,
                                    restart_type::temporary};
  s.type = types[choose.below(4)];
  s.sacrificial_fails = choose.below(3) == 0;
  for (std::uint32_t i = choose.below(4); i > 0; --i) s.killers.insert(choose.below(40));
  for (std::uint32_t i = choose.below(4); i > 0; --i) s.killers_once.insert(choose.below(40));
  return s;
}

script random_script(random_choice& choose) {
  // Wild scripts are short, with many faults and no recovery afterwards.
  const bool wild = choose.below(2) == 0;
  const std::uint32_t calm = wild ? 1 : 1 + choose.below(12);
  script made(wild ? 5 + choose.below(45) : 50 + choose.below(450));
  for (step& s : made) {
    s.what = static_cast<act>(choose.below(static_cast<std::uint32_t>(act::count)));
    if (s.what == act::wedge && choose.below(4) != 0) s.what = act::kill;
    const bool accident = s.what == act::kill || s.what == act::fail_to_start || s.what == act::kill_owner ||
                          s.what == act::exit_0 || s.what == act::wedge || s.what == act::kill_idle;
    const bool operation = s.what == act::scale || s.what == act::drain || s.what == act::restart ||
                           s.what == act::drain_backoff || s.what == act::recycle || s.what == act::pause;
    if ((accident || operation) && choose.below(calm) != 0) {
      constexpr act ordinary[] = {act::work, act::report, act::get_ready, act::tick};
      s.what = ordinary[choose.below(4)];
    }
    s.pick = choose.below(1000);
  }
  return made;
}

std::string describe(const world_settings& s) {
  return fmt::format(
      "workers {}, slots {}, samples {}, batch size {}, epochs {}, intensity {}, restart type {}, "
      "sacrificial fails {}",
      s.workers, s.slots, s.samples, s.batch_size, s.epochs, s.intensity, static_cast<int>(s.type),
      s.sacrificial_fails);
}

std::uint64_t given_up = 0;  // number of scripts in which the pool gave up, as the rules require

std::size_t run(const world_settings& settings, const script& steps_to_do) {
  world w(settings);
  w.run(steps_to_do);
  given_up += w.gave_up() ? 1 : 0;
  return w.steps();
}

const testing::model<act, world_settings> model{.name = "pool and ledger model",
                                                .act_names = act_names,
                                                .random_script = random_script,
                                                .random_settings = random_settings,
                                                .describe = describe,
                                                .run = run};

}  // namespace

TEST_CASE("pool and ledger together deliver all batches once, whatever dies, drains or restarts") {
  given_up = 0;
  const std::uint64_t scripts = testing::explore(model);
  // A model that always gave up would prove nothing.
  CHECK(given_up * 2 < scripts);
}

TEST_CASE("the model of pool and ledger finds a planted bug and shrinks it to a few steps") {
  world_settings settings;
  settings.deaths_untold = true;
  script steps_to_do(200, step{act::tick, 1});
  steps_to_do[20] = {act::get_ready, 0};
  steps_to_do[130] = {act::kill, 0};
  const std::string what = model.trouble_with(settings, steps_to_do);
  REQUIRE(what == "the pool shows a nonexistent process, or hides one");
  CHECK(model.shortest(settings, steps_to_do, what).size() <= 1);
}
