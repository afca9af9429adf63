// Model test of the ledger against a simulated world of workers, memory, a device and a consumer, driven by
// random scripts: deaths at any time, late messages, owners that die. An independent record of the contents
// of each slot detects every lost, duplicated, reordered or overwritten batch. A failing script is shrunk and
// printed.
#include "runtime/schedule/ledger.hpp"
#include "tests/runtime/schedule/random_scripts.hpp"
#include "tests/runtime/schedule/small_plan.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <tuple>

using namespace penstock;
using namespace penstock::schedule;
using testing::random_choice;
using testing::small_plan;
using testing::violation;

namespace {

// clang-format off
enum class act : std::uint8_t { work, deliver, kill, start, copy, acknowledge, kill_owner, leave_out, give_probations_up,
                                pause, hedge, hedge_head, complete, count };
constexpr const char* act_names[] = {"work", "deliver", "kill", "start", "copy", "acknowledge", "kill_owner",
                                     "leave_out", "give_probations_up", "pause", "hedge", "hedge_head", "complete"};
// clang-format on

using step = testing::step<act>;
using script = testing::script_of<act>;

struct world_settings {
  std::uint32_t workers = 1;
  std::uint32_t slots = 1;
  std::uint32_t local = 5;  // workers in higher places run on hosts, two on each
  std::uint64_t samples = 1;
  std::uint32_t batch_size = 1;
  std::uint64_t epochs = 1;
  bad_sample_rule rule = bad_sample_rule::skip;
  std::uint32_t window = 0;              // 0: strict order
  std::uint32_t spare = 0;               // slots that only hedges use; fewer than `slots`
  std::uint32_t first_slots = 0;         // slots in all places until they are complete, more than `spare`; 0: places begin complete
  std::uint64_t early = 0;               // batches that an earlier run delivered, within the first epoch
  std::set<std::uint64_t> killers;       // samples that kill in every attempt
  std::set<std::uint64_t> killers_once;  // samples that kill in the first attempt of each epoch
  std::set<std::uint64_t> broken;        // samples that fail with an error
  bool deaths_unreported = false;        // an injected bug: the ledger is not told of deaths
};

constexpr std::uint32_t sacrificial_place = 100;

/// Totals over all worlds.
struct tries {
  std::uint64_t hedges = 0;
  std::uint64_t won = 0;
  std::uint64_t heads = 0;
  std::uint64_t repeated_deaths = 0;
  std::uint64_t choices = 0;  // choices of a worker while another one was idle
  std::uint64_t held_back = 0;  // batches loaded before their place was complete
} tried;

class world {
 public:
  explicit world(world_settings settings)
      : settings_(std::move(settings)),
        plan_(settings_.samples, settings_.batch_size),
        end_(plan_.batches() * settings_.epochs),
        books_({.max_attempts = 3,
                .quarantine_max = 1000,
                .on_bad_sample = settings_.rule,
                .window = settings_.window,
                .spare_slots = settings_.spare},
               plan_, {0, end_, settings_.early}),
        uploaded_(0, settings_.early),
        delivered_(0, settings_.early) {
    for (std::uint32_t w = 0; w < settings_.workers; ++w) places_[w];
    places_[sacrificial_place];
    if (settings_.first_slots == 0) return;
    for (const auto& [number, p] : places_) {
      books_.place_grows(number, settings_.first_slots);
      growing_.insert(number);
    }
  }

  void run(const script& steps_to_do) {
    for (const step& s : steps_to_do) {
      perform(s);
      carry_out(books_.advance());
    }
    finish();
    tried.hedges += books_.hedges().started;
    tried.won += books_.hedges().won;
  }

 private:
  struct held_lease {
    load_command load;
    std::uint32_t next_row = 0;  // the next row of the lease's samples
    std::vector<std::uint64_t> written;
    load_report report;
    bool dropped = false;
  };

  struct place {
    std::uint32_t incarnation = 0;
    bool alive = false;
    std::deque<held_lease> leases;
    std::uint32_t leased = 0;  // number of leases as the ledger counts them
  };

  struct memory {  // the actual contents of a slot
    std::vector<std::uint64_t> samples;
    bool being_written = false;
  };

  // Each bit of `pick` says whether that worker is late.
  void hedge(std::uint32_t pick) {
    late_.clear();
    for (std::uint32_t w = 0; w < settings_.workers; ++w) {
      if ((pick >> w & 1U) != 0) late_.insert(w);
    }
    books_.hedge(late_);
  }

  // A copy of the head goes only to an idle worker, and not to the one that has it.
  void hedge_head() {
    late_.clear();
    for (const auto& [index, p] : places_) {
      if (!p.leases.empty()) late_.insert(index);
    }
    const std::uint64_t before = books_.hedges().started;
    books_.hedge_head();
    tried.heads += books_.hedges().started - before;
  }

  void perform(step s) {
    switch (s.what) {
      case act::work: work(pick_place(s.pick)); break;
      case act::deliver: deliver(s.pick); break;
      case act::kill: kill(s.pick % settings_.workers); break;
      case act::start: start(pick_place(s.pick)); break;
      case act::copy: copy(); break;
      case act::acknowledge: acknowledge(); break;
      case act::kill_owner: kill_owner(); break;
      case act::leave_out: leave_out(s.pick); break;
      case act::give_probations_up: books_.cannot_try_alone("no worker for it"); break;
      case act::pause: books_.set_paused(s.pick % 4 == 0); break;
      case act::hedge: hedge(s.pick); break;
      case act::hedge_head: hedge_head(); break;
      case act::complete: complete(pick_place(s.pick)); break;
      case act::count: break;
    }
  }

  void complete(std::uint32_t number) {
    if (growing_.erase(number) > 0) books_.place_complete(number);
  }

  std::uint32_t pick_place(std::uint32_t pick) const {
    const std::uint32_t n = pick % (settings_.workers + 1);
    return n == settings_.workers ? sacrificial_place : n;
  }

  void start(std::uint32_t number) {
    place& p = places_[number];
    if (p.alive || (number == sacrificial_place && !books_.wants_sacrificial())) return;
    p.alive = true;
    ++p.incarnation;
    const bool alone = number == sacrificial_place;
    books_.worker_joined({number, p.incarnation}, alone ? 1 : settings_.slots,
                         alone ? worker_kind::sacrificial : worker_kind::loader, host_of(number));
  }

  std::optional<std::uint64_t> host_of(std::uint32_t number) const {
    if (number < settings_.local || number == sacrificial_place) return std::nullopt;
    return (number - settings_.local) / 2;
  }

  bool kills(const planned_sample& s) const {
    return settings_.killers.contains(s.sample) ||
           (settings_.killers_once.contains(s.sample) && s.attempt == 1);
  }

  // One sample of the oldest lease.
  void work(std::uint32_t number) {
    place& p = places_[number];
    if (!p.alive || p.leases.empty()) return;
    held_lease& held = p.leases.front();
    memory& slot = memory_[{number, held.load.lease.slot}];
    if (in_use_by_device(number, held.load.lease.slot))
      throw violation{"a slot is written while the device reads it"};
    slot.being_written = true;
    if (held.dropped) held.next_row = static_cast<std::uint32_t>(held.load.samples.size());
    if (held.next_row < held.load.samples.size()) {
      const planned_sample s = held.load.samples[held.next_row];
      if (kills(s)) {
        die(number, flight_mark{held.load.lease.slot, held.load.lease.generation, held.next_row});
        return;
      }
      if (settings_.broken.contains(s.sample)) {
        held.report.failures.push_back({held.next_row, "broken"});
      } else {
        held.written.push_back(s.sample);
      }
      ++held.next_row;
    }
    if (held.next_row < held.load.samples.size()) return;
    slot.samples = held.written;
    slot.being_written = false;
    held.report.lease = held.load.lease;
    held.report.rows = static_cast<std::uint32_t>(held.written.size());
    held.report.busy = std::chrono::milliseconds(held.load.position % 3 * 60);  // some batches are slow
    in_transit_.push_back(held.report);
    p.leases.pop_front();
  }

  void deliver(std::uint32_t pick) {
    if (in_transit_.empty()) return;
    // Messages of one worker stay in order; those of different workers need not.
    const worker_ref sender = in_transit_[pick % in_transit_.size()].lease.holder;
    const auto first =
        std::ranges::find_if(in_transit_, [&](const auto& r) { return r.lease.holder == sender; });
    const load_report report = *first;
    in_transit_.erase(first);
    const place& p = places_[sender.worker];
    const arrival expected =
        p.alive && p.incarnation == sender.incarnation ? arrival::accepted : arrival::late;
    const auto counts = counting_.find(key_of(report.lease));
    const auto position = counts == counting_.end() ? std::nullopt : std::optional(counts->second);
    if (expected == arrival::accepted && books_.position_of(report.lease) != position && !may_be_given_up(position))
      throw violation{"a report counts although another worker was faster, or does not although it was first"};
    if (books_.loaded(report) != expected)
      throw violation{"a report was not accepted, or a late one was"};
    if (expected == arrival::accepted) {
      --places_[sender.worker].leased;
      if (sender.worker != sacrificial_place) held_.insert({sender.worker, report.lease.slot});
      tried.held_back += growing_.count(sender.worker);
    }
    if (position) std::erase_if(counting_, [&](const auto& one) { return one.second == *position; });
  }

  /// A quarantine ends both leases of a batch that was being loaded twice.
  bool may_be_given_up(std::optional<stream_position> position) const {
    return position && std::ranges::any_of(plan_.samples(*position), [&](std::uint64_t s) { return quarantined_.contains(s); });
  }

  // A kill from outside, at any time; between samples no sample is blamed. The sacrificial worker is spared, because there a kill from
  // outside looks exactly like a death by its sample.
  void kill(std::uint32_t number) {
    place& p = places_[number];
    if (!p.alive) return;
    std::optional<flight_mark> mark;
    if (!p.leases.empty() && p.leases.front().next_row > 0 &&
        p.leases.front().next_row < p.leases.front().load.samples.size()) {
      const held_lease& held = p.leases.front();
      mark = flight_mark{held.load.lease.slot, held.load.lease.generation, held.next_row};
    }
    die(number, mark);
  }

  void die(std::uint32_t number, std::optional<flight_mark> mark) {
    place& p = places_[number];
    if (settings_.deaths_unreported) {
      p.leases.clear();
      return;
    }
    const auto blamed = books_.worker_died({number, p.incarnation}, mark, "SIGSEGV");
    check_blame(p, mark, blamed);
    std::erase_if(counting_, [&](const auto& one) { return std::get<0>(one.first) == number; });
    if (blamed) note_blame(number, *blamed);
    p.alive = false;
    p.leases.clear();
    p.leased = 0;
    for (auto& [where, slot] : memory_) {
      if (where.first == number && slot.being_written) slot = {};
    }
  }

  void note_blame(std::uint32_t number, const blame& to) {
    const auto key = std::pair(plan_.epoch_of(to.position), to.sample);
    const auto before = died_of_.find(to.position);
    const bool repeated = !to.alone && before != died_of_.end() && before->second == to.sample;
    if (to.repeated != repeated) throw violation{"two deaths of one attempt count twice, or two attempts count once"};
    if (repeated) {
      ++tried.repeated_deaths;
      killed_by_[key].insert(number);
      return;
    }
    killed_by_[key] = {number};
    ++blamed_[key];
    const bool other_has_it = std::ranges::any_of(counting_, [&](const auto& one) { return one.second == to.position; });
    if (!to.alone && other_has_it) died_of_[to.position] = to.sample;
  }

  void check_blame(const place& p, const std::optional<flight_mark>& mark,
                   const std::optional<blame>& blamed) const {
    if (blamed.has_value() != mark.has_value()) {
      // Another epoch may have quarantined the sample while it was being tried alone.
      const load_command& load = p.leases.front().load;
      const bool decided = mark && quarantined_.contains(load.samples.front().sample);
      const bool not_needed = mark && (!counting_.contains(key_of(load.lease)) || may_be_given_up(load.position)) &&
                              load.lease.holder.worker != sacrificial_place;
      if (!decided && !not_needed) throw violation{"a death was blamed on no sample, or on one without a reason"};
    } else if (blamed && blamed->sample != p.leases.front().load.samples[mark->row].sample) {
      throw violation{"a death was blamed on the wrong sample"};
    }
  }

  void carry_out(const std::vector<command>& commands) {
    for (const command& c : commands) {
      if (const auto* load = std::get_if<load_command>(&c)) take_lease(*load);
      if (const auto* drop = std::get_if<drop_command>(&c)) take_drop(*drop);
      if (const auto* upload = std::get_if<upload_command>(&c)) take_upload(*upload);
      if (const auto* lost = std::get_if<sample_quarantined>(&c)) {
        // Kills from outside can hit the same sample repeatedly; once it was cleared twice, the next one
        // quarantines it.
        const std::uint32_t blamed = blamed_[{plan_.epoch_of(lost->position), lost->sample}];
        const bool untried = lost->causes.back() == "could not be tried alone: no worker for it";
        const bool proved =
            settings_.killers.contains(lost->sample) || blamed >= 6 || (untried && blamed >= 2);
        if (!proved) throw violation{"wrongly quarantined"};
        wrongly_quarantined_ |= !settings_.killers.contains(lost->sample);
        quarantined_.insert(lost->sample);
      }
      if (std::get_if<give_up>(&c) != nullptr) throw violation{"the ledger gave up"};
    }
  }

  void take_lease(const load_command& load) {
    place& p = places_[load.lease.holder.worker];
    if (!p.alive || p.incarnation != load.lease.holder.incarnation)
      throw violation{"a lease for a dead worker"};
    const bool alone = load.lease.holder.worker == sacrificial_place;
    if (alone && load.samples.size() != 1) throw violation{"the sacrificial worker got more than one sample"};
    if (!alone && p.leases.size() >= settings_.slots) throw violation{"more leases than slots"};
    if (growing_.contains(load.lease.holder.worker) && load.lease.slot >= settings_.first_slots) throw violation{"a slot without memory is leased"};
    if (load.epoch != plan_.epoch_of(load.position)) throw violation{"wrong epoch"};
    auto& generation = generations_[{load.lease.holder.worker, load.lease.slot}];
    if (load.lease.generation <= generation) throw violation{"a generation was used before"};
    generation = load.lease.generation;
    for (const held_lease& held : p.leases) {
      if (held.load.lease.slot == load.lease.slot) throw violation{"a slot leased twice"};
    }
    if (!alone) note_lease(load);
    std::set<std::uint32_t> died_of_it;
    for (const planned_sample& s : load.samples) {
      if (quarantined_.contains(s.sample)) throw violation{"a quarantined sample is loaded"};
      if (!alone && s.attempt > 2) throw violation{"a third attempt runs outside the sacrificial worker"};
      if (s.attempt > 1) died_of_it.merge(std::set(killed_by_.at({load.epoch, s.sample})));
    }
    if (!alone && died_of_it.contains(load.lease.holder.worker) && anyone_but(died_of_it)) {
      throw violation{"the second attempt runs where the first one died"};
    }
    if (!alone && !load.hedge) check_choice(load.lease.holder.worker, died_of_it);
    held_.erase({load.lease.holder.worker, load.lease.slot});
    ++p.leased;
    p.leases.push_back({load, 0, {}, {}});
  }

  // Rule H20. Compares the chosen worker only with workers that hold nothing, because those certainly have a free slot.
  void check_choice(std::uint32_t chosen, const std::set<std::uint32_t>& died_of_it) const {
    for (const auto& [number, p] : places_) {
      const auto held = held_.lower_bound({number, 0});
      const bool holds_nothing = p.leased == 0 && (held == held_.end() || held->first != number);
      if (number == sacrificial_place || number == chosen || !p.alive || !holds_nothing || died_of_it.contains(number)) continue;
      ++tried.choices;
      if (order_of(number) < order_of(chosen))
        throw violation{"a batch goes to a busy worker or host although another one is idle, or to a host before a local worker"};
    }
  }

  std::tuple<std::uint32_t, std::uint32_t, std::uint32_t> order_of(std::uint32_t number) const {
    std::uint32_t on_host = 0;
    for (const auto& [other, p] : places_) {
      if (host_of(number) && host_of(other) == host_of(number)) on_host += p.leased;
    }
    return {places_.at(number).leased, on_host, number};
  }

  using lease_key = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;
  static lease_key key_of(const lease_ref& lease) { return {lease.holder.worker, lease.slot, lease.generation}; }

  void note_lease(const load_command& load) {
    const auto others = std::ranges::count_if(counting_, [&](const auto& one) { return one.second == load.position; });
    if (load.hedge) {
      if (others != 1) throw violation{"a hedge of a batch that no worker loads, or that two load"};
      if (late_.contains(load.lease.holder.worker)) throw violation{"a hedge goes to a late worker"};
      for (const planned_sample& s : load.samples) {
        if (s.attempt != 1) throw violation{"a suspect runs in two workers"};
      }
    } else {
      if (others != 0 && !may_be_given_up(load.position)) throw violation{"a batch is leased twice without a hedge"};
      std::erase_if(counting_, [&](const auto& one) { return one.second == load.position; });
      died_of_.erase(load.position);
    }
    counting_[key_of(load.lease)] = load.position;
  }

  void take_drop(const drop_command& drop) {
    const auto counts = counting_.find(key_of(drop.lease));
    if (counts != counting_.end() && !may_be_given_up(counts->second)) throw violation{"a valid lease is dropped"};
    for (held_lease& held : places_[drop.lease.holder.worker].leases) {
      if (held.load.lease == drop.lease) held.dropped = true;
    }
  }

  bool anyone_but(const std::set<std::uint32_t>& these) const {
    return std::ranges::any_of(places_, [&](const auto& entry) {
      return entry.first != sacrificial_place && entry.second.alive && !these.contains(entry.first);
    });
  }

  void take_upload(const upload_command& upload) {
    if (growing_.contains(upload.worker)) throw violation{"an upload from memory that the device cannot read yet"};
    note(uploaded_, upload.position, "an upload");
    check_slot(upload);
    uploads_.push_back(upload);
    copied_.push_back(false);
  }

  void note(delivery_front& front, stream_position position, const char* what) const {
    if (position < front.head() || front.has(position)) throw violation{fmt::format("{} is delivered twice", what)};
    const stream_position lead = position - front.head();
    if (lead > settings_.window || (lead > 0 && plan_.epoch_of(position) != plan_.epoch_of(front.head())))
      throw violation{fmt::format("{} is delivered {} places early", what, lead)};
    front.add(position);
  }

  void check_slot(const upload_command& upload) {
    const memory& slot = memory_[{upload.worker, upload.slot}];
    if (slot.being_written || slot.samples != upload.samples) {
      throw violation{"the slot of an upload does not contain its batch"};
    }
  }

  bool in_use_by_device(std::uint32_t worker, std::uint32_t slot) const {
    for (std::size_t i = 0; i < uploads_.size(); ++i) {
      if (!copied_[i] && uploads_[i].worker == worker && uploads_[i].slot == slot) return true;
    }
    return false;
  }

  void copy() {
    for (std::size_t i = 0; i < uploads_.size(); ++i) {
      if (copied_[i]) continue;
      check_slot(uploads_[i]);
      copied_[i] = true;
      held_.erase({uploads_[i].worker, uploads_[i].slot});
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
    if (!done || done->position != upload.position) throw violation{"an acknowledgement of another batch"};
    note(delivered_, done->position, "a delivery");
    check_content(upload, *done);
  }

  void check_content(const upload_command& upload, const delivery& done) {
    const auto planned = plan_.samples(upload.position);
    if (done.delivered != upload.samples.size()) throw violation{"delivered rows are not the uploaded rows"};
    if (done.delivered + done.failed + done.quarantined != planned.size())
      throw violation{"the sum is wrong"};
    if (left_out_.contains(upload.position)) {
      if (done.delivered != 0) throw violation{"a skipped batch has samples"};
      return;
    }
    if (wrongly_quarantined_) return;
    std::vector<std::uint64_t> expected;
    std::uint32_t replaced = 0;
    for (std::size_t row = 0; row < planned.size(); ++row) {
      const bool lost = settings_.broken.contains(planned[row]) || settings_.killers.contains(planned[row]);
      if (!lost) {
        expected.push_back(planned[row]);
      } else if (settings_.rule == bad_sample_rule::replace) {
        for (std::uint32_t t = 1; t <= 16; ++t) {
          const auto other = plan_.replacement(upload.position, static_cast<std::uint32_t>(row), t);
          if (settings_.broken.contains(other) || settings_.killers.contains(other)) continue;
          expected.push_back(other);
          ++replaced;
          break;
        }
      }
    }
    if (upload.samples != expected) throw violation{"a batch does not have the samples of its plan"};
    if (done.replaced != replaced) throw violation{"replaced rows are not counted"};
  }

  void kill_owner() {
    books_.owner_died();
    uploads_.clear();
    copied_.clear();
    uploaded_ = delivered_;
  }

  // Leaves out a batch that has killed an owner, so that it does not kill another one.
  void leave_out(std::uint32_t pick) {
    if (uploads_.empty()) return;
    const upload_command poison = uploads_[pick % uploads_.size()];
    kill_owner();
    if (books_.leave_out(poison.position, "it kills owners") != poison.samples)
      throw violation{"the skipped samples are not the uploaded ones"};
    left_out_.insert(poison.position);
  }

  // No more faults: all batches must be delivered in a bounded number of steps.
  void finish() {
    const std::uint64_t bound = 1000 + end_ * 60 * (settings_.batch_size + 4);
    books_.set_paused(false);
    for (const auto& [number, p] : places_) complete(number);
    for (std::uint64_t i = 0; !books_.finished(); ++i) {
      if (i > bound) throw violation{"deadlock: no event is left"};
      for (auto& [number, p] : places_) start(number);
      carry_out(books_.advance());
      for (auto& [number, p] : places_) work(number);
      deliver(0);
      carry_out(books_.advance());
      copy();
      acknowledge();
      carry_out(books_.advance());
    }
    if (delivered_.head() != end_) throw violation{"some batches were not delivered"};
  }

  world_settings settings_;
  small_plan plan_;
  stream_position end_;
  ledger books_;
  std::map<std::uint32_t, place> places_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, memory> memory_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> generations_;
  std::set<std::pair<std::uint32_t, std::uint32_t>> held_;  // slots that a batch may still be in
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::set<std::uint32_t>> killed_by_;  // in the last attempt
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint32_t> blamed_;
  std::map<lease_key, stream_position> counting_;            // leases whose reports count
  std::map<stream_position, std::uint64_t> died_of_;         // of batches that another worker still loads
  std::set<std::uint32_t> late_;
  std::set<std::uint32_t> growing_;
  std::deque<load_report> in_transit_;
  std::deque<upload_command> uploads_;
  std::deque<bool> copied_;
  std::set<std::uint64_t> quarantined_;
  std::set<stream_position> left_out_;
  delivery_front uploaded_;
  delivery_front delivered_;
  bool wrongly_quarantined_ = false;
};

world_settings random_settings(random_choice& choose) {
  world_settings s;
  s.workers = 1 + choose.below(5);
  s.slots = 1 + choose.below(4);
  s.local = choose.below(s.workers + 1);
  s.samples = 1 + choose.below(40);
  s.batch_size = 1 + choose.below(4);
  s.epochs = 1 + choose.below(3);
  s.rule = choose.below(3) == 0 ? bad_sample_rule::replace : bad_sample_rule::skip;
  if (choose.below(2) == 0) s.window = 1 + choose.below(8);
  if (choose.below(2) == 0 && s.slots > 1) s.spare = 1;
  if (choose.below(2) == 0) s.first_slots = s.spare + 1 + choose.below(s.slots - s.spare);
  // The first batch is never early, and neither is one of the second epoch.
  const std::uint64_t batches = (s.samples + s.batch_size - 1) / s.batch_size;
  if (choose.below(4) == 0 && batches > 1)
    s.early = choose.below(1U << std::min<std::uint64_t>(batches - 1, 8));
  for (std::uint32_t i = choose.below(4); i > 0; --i) s.killers.insert(choose.below(40));
  for (std::uint32_t i = choose.below(4); i > 0; --i) s.killers_once.insert(choose.below(40));
  for (std::uint32_t i = choose.below(4); i > 0; --i) s.broken.insert(choose.below(40));
  return s;
}

script random_script(random_choice& choose) {
  // Faults are rarer than work, and in some scripts much rarer.
  const std::uint32_t calm = 1 + choose.below(8);
  script made(50 + choose.below(450));
  for (step& s : made) {
    s.what = static_cast<act>(choose.below(static_cast<std::uint32_t>(act::count)));
    const bool accident = s.what == act::kill || s.what == act::kill_owner || s.what == act::pause;
    const bool rare = s.what == act::leave_out || s.what == act::give_probations_up || s.what == act::complete;
    if (rare && choose.below(10) != 0) s.what = act::deliver;
    if ((accident || rare) && choose.below(calm) != 0)
      s.what = choose.below(2) == 0 ? act::work : act::deliver;
    s.pick = choose.below(1000);
  }
  return made;
}

std::string describe(const world_settings& s) {
  return fmt::format("workers {}, {} of them local, slots {}, samples {}, batch size {}, epochs {}, window {}, early {:#x}, spare {}, first slots {}",
                     s.workers, s.local, s.slots, s.samples, s.batch_size, s.epochs, s.window, s.early, s.spare, s.first_slots);
}

std::size_t run(const world_settings& settings, const script& steps_to_do) {
  world(settings).run(steps_to_do);
  return steps_to_do.size();
}

const testing::model<act, world_settings> model{.name = "ledger model",
                                                .act_names = act_names,
                                                .random_script = random_script,
                                                .random_settings = random_settings,
                                                .describe = describe,
                                                .run = run};

}  // namespace

TEST_CASE(
    "every batch is delivered once, in strict or relaxed order, with its planned samples, whatever dies") {
  testing::explore(model);
  CHECK(testing::is_tried(tried.hedges, 1000));
  CHECK(testing::is_tried(tried.won, 100));
  CHECK(testing::is_tried(tried.heads, 100));
  CHECK(testing::is_tried(tried.repeated_deaths, 10));
  CHECK(testing::is_tried(tried.choices, 1000));
  CHECK(testing::is_tried(tried.held_back, 1000));
}

TEST_CASE("the model finds a planted bug and shrinks it to a few steps") {
  world_settings settings;
  settings.samples = 4;
  settings.deaths_unreported = true;
  script steps_to_do(200, step{act::deliver, 0});
  steps_to_do[20] = {act::start, 0};
  steps_to_do[130] = {act::kill, 0};
  const std::string what = model.trouble_with(settings, steps_to_do);
  REQUIRE(what == "deadlock: no event is left");
  CHECK(model.shortest(settings, steps_to_do, what).size() <= 2);  // the script: start a worker, kill it
}
