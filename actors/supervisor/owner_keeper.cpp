#include "actors/supervisor/owner_keeper.hpp"

#include "actors/protocol/config_bytes.hpp"
#include "actors/protocol/hello.hpp"
#include "actors/protocol/tensors.hpp"
#include "actors/supervisor/owner_communicator.hpp"
#include "actors/supervisor/owner_rules.hpp"
#include "actors/supervisor/owner_uploads.hpp"
#include "actors/supervisor/sink_wait.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/units.hpp"
#include "runtime/process/oom_watch.hpp"
#include "runtime/process/process_facts.hpp"
#include "runtime/supervision/owner_supervision.hpp"

#include <caf/actor_system.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <csignal>
#include <set>

namespace penstock::supervisor {
namespace {

using namespace std::chrono_literals;

constexpr auto look_every = 250ms;
constexpr std::uint64_t answers_to_communicate = 8;  // at most

struct keeper_state {
  keeper_state() = default;
  ~keeper_state() = default;
  keeper_state(const keeper_state&) = delete;
  keeper_state& operator=(const keeper_state&) = delete;

  keeper_surroundings around;
  protocol::peers others;
  std::unique_ptr<supervision::owner_supervision> owner;  // makes all decisions
  process::oom_watch oom{process::oom_evidence_file()};
  std::shared_ptr<protocol::owner_link> link;

  // Sent to every incarnation when it is introduced.
  std::optional<protocol::prepare_owner> preparation;
  std::set<std::uint32_t> partitions;

  device::identity device;      // as the last incarnation opened it
  owner_facts told;             // the latest facts published
  steady_time wake_at = never;  // a wake-up is scheduled for this time
  sink_wait waits{look_every};
  std::optional<owner_communicator> communicator;  // of a group that has one
  std::uint64_t flight = 0;                        // which upload the sink is working on, and since when
  steady_time flight_since{};
};

using self_pointer = owner_keeper_actor::stateful_pointer<keeper_state>;

steady_time now_of(self_pointer self) {
  return self->clock().now();
}

void tell_changes(keeper_state& s) {
  const supervision::owner_supervision& o = *s.owner;
  const owner_facts facts{std::string(name_of(o.stage())), o.pid(), o.restarts(), o.irreplaceable()};
  if (facts == s.told) return;
  s.told = facts;
  s.around.news->owner_changed(facts);
}

std::optional<std::uint32_t> in_hand(const arena::flight_reading& flight) {
  return flight.state.at == arena::phase::loading ? std::optional(flight.state.generation) : std::nullopt;
}

// ---- commands ---------------------------------------------------------------------------------------------

void follow(self_pointer self, owner_communicator::orders what);

struct carry_out {
  self_pointer self;
  keeper_state& s = self->state;

  void operator()(const supervision::start_owner_process& order) {
    s.flight = 0;
    s.waits.begin_owner();
    s.around.flights->clear(s.around.flight_page);
    s.around.process->start(order.incarnation);
  }
  /// Everything that the session has sent to the owner so far, in the order in which it must arrive.
  void operator()(const supervision::introduce_owner& order) {
    const auto& snapshot = s.owner->orders().snapshot();
    s.link->send(protocol::open_owner{.incarnation = order.incarnation,
                                      .flight_page = s.around.flight_page,
                                      .config = protocol::config_as_bytes(s.around.settings),
                                      .sink = s.around.sink,
                                      .out = s.around.out,
                                      .digests = s.around.digests,
                                      .restores = snapshot.has_value(),
                                      .snapshot = snapshot.value_or(""),
                                      .pool = s.around.jobs != nullptr,
                                      .base = s.communicator ? s.communicator->introduced() : 0});
    if (s.preparation) s.link->send(*s.preparation);
    for (const std::uint32_t p : s.partitions) s.link->send(protocol::map_partition{p});
  }
  void operator()(const supervision::send_uploads& order) {
    s.link->expect(2 * order.uploads.size());  // two reports for each: copied, delivered
    for (protocol::to_owner& part : messages_of(order.uploads)) s.link->send(std::move(part));
  }
  void operator()(const supervision::stop_owner_process& order) {
    s.link->send(protocol::stop_owner{order.whole});
  }
  void operator()(const supervision::send_signal& signal) {
    s.around.process->signal(s.owner->incarnation(), signal.number);
  }
  void operator()(const supervision::killing_begins& why) {
    if (const auto pid = s.owner->pid())
      return log::warn("gpu", "killing {}: {}", owner_in_words(*pid), why.reason);
    log::warn("gpu", "giving up the start of the GPU owner: {}", why.reason);
  }
  void operator()(const supervision::uploads_lost& lost) {
    if (s.around.jobs != nullptr) return s.around.jobs->uploads_lost(loss_of_jobs(lost));
    std::optional<scheduler::poison_batch> poison;
    if (lost.left_out) poison = scheduler::poison_batch{lost.left_out->position, lost.left_out->reason};
    self->send(s.others.scheduler, scheduler::owner_lost{lost.era, std::move(poison)});
  }
  void operator()(const supervision::owner_is_ready& ready) {
    if (s.communicator) follow(self, s.communicator->ready());
    if (ready.first) return s.around.news->opened(s.device);
    s.around.news->reopened(s.owner->pid().value_or(0));
  }
  void operator()(const supervision::owner_recovered& again) {
    s.around.news->owner_recovered(again.incarnation,
                                   std::chrono::duration<double>(again.since_its_end).count());
  }
  void operator()(const supervision::owner_died& death) {
    const std::string text = death_in_words(death);
    death.unasked ? log::warn("gpu", "{}", text) : log::info("gpu", "{}", text);
    s.around.news->owner_died(death.report);
  }
  void operator()(const supervision::owner_left_out& batch) { log::warn("gpu", "{}", batch.text); }
  void operator()(const supervision::owner_not_started& no) {
    log::warn("gpu", "the GPU owner could not be started: {}; trying again in {}", no.reason.message,
              duration_for_people(no.again_in));
  }
  void operator()(const supervision::owner_failed& end) { s.around.news->gave_up(end.reason); }
  void operator()(const supervision::owner_closed&) { s.around.news->owner_closed(); }
};

void advance(self_pointer self) {
  keeper_state& s = self->state;
  const steady_time now = now_of(self);
  carry_out orders{self};
  for (const supervision::owner_command& c : s.owner->advance(now)) std::visit(orders, c);
  tell_changes(s);
  const steady_time due = s.owner->next_deadline();
  if (due >= s.wake_at) return;
  s.wake_at = due;
  self->delayed_send(owner_keeper_actor(self), std::max<nanoseconds>(due - now, 0ns), wake_keeper{});
}

// ---- messages of the session ------------------------------------------------------------------------------

void prepare(keeper_state& s, const gpu_owner::prepare_device& order) {
  std::vector<tensor_spec> tensors;
  // The owner adds the layout's length tensors itself.
  const batch_layout& slot = order.plan->slot;
  for (std::size_t i = 0; i < slot.described; ++i) tensors.push_back(slot.tensors[i].spec);
  s.preparation = protocol::prepare_owner{protocol::as_wire(tensors), order.plan->slot.rows_max,
                                          order.shape.slot_bytes, order.shape.slots, order.shape.partitions};
  if (s.owner->hears()) s.link->send(*s.preparation);
}

void attach(keeper_state& s, const gpu_owner::attach_partition& order) {
  s.partitions.insert(order.partition);
  if (s.owner->hears()) s.link->send(protocol::map_partition{order.partition});
}

// ---- messages of the process ------------------------------------------------------------------------------

/// Translates the messages of one incarnation into events. Messages that violate the protocol are not passed
/// on.
struct hear {
  self_pointer self;
  std::uint32_t incarnation = 0;
  keeper_state& s = self->state;
  steady_time now = now_of(self);

  void operator()(const protocol::hello& hello) {
    s.owner->greeted(incarnation, now, protocol::refusal_of(hello, "it is not a penstock GPU owner"));
  }
  void operator()(const protocol::owner_opened& what) {
    s.device = {what.kind, what.name, what.uuid.empty() ? std::nullopt : std::optional(what.uuid)};
    s.owner->opened(incarnation, now);
  }
  void operator()(protocol::slots_copied& news) {
    std::vector<std::uint64_t> released;
    for (const std::uint64_t upload : news.uploads) {
      if (!s.owner->copied(incarnation, now, upload)) break;
      released.push_back(upload);
      note_copied(s.around.times.get(), s.owner->orders().find(upload), now);
    }
    if (!released.empty() && s.around.jobs == nullptr)
      self->send(s.others.scheduler, scheduler::slots_released{std::move(released)});
  }
  void operator()(protocol::batches_delivered& news) {
    const auto* last =
        news.deliveries.empty() ? nullptr : s.owner->orders().find(news.deliveries.back().upload);
    if (!s.communicator || last == nullptr) return take(news);
    follow(self, s.communicator->delivered(last->position + 1, std::move(news)));
  }
  void operator()(const protocol::communicator_changed& news) {
    if (!s.communicator) return;
    if (!news.id.empty()) {
      s.communicator->drawn(news.number);
      return s.around.news->communicator_drawn(news.number, news.id);
    }
    follow(self, s.communicator->told(
                     {news.number, static_cast<group::communicator_state::how>(news.at), news.cause}));
  }
  void take(const protocol::batches_delivered& news) {
    for (const protocol::wire_delivery& d : news.deliveries) {
      const upload_order* batch = s.owner->orders().find(d.upload);
      const stream_position position = batch != nullptr ? batch->position : 0;
      if (!s.owner->delivered(incarnation, now, d.upload)) return;
      note_times(s.around.times.get(), position, d);
      const auto digest = news.digests ? std::optional(d.digest) : std::nullopt;
      if (s.around.deliveries->add({d.upload, digest}))
        self->send(s.others.scheduler, scheduler::batches_delivered{s.around.deliveries});
    }
    if (news.snapshots) s.owner->keep_snapshot(news.snapshot);
    note_counts(news.uploads, news.bytes, news.pinned);
  }
  void operator()(protocol::jobs_answered& news) {
    std::vector<jobs::device_answer> answers;
    for (protocol::wire_job_answer& a : news.answers) {
      if (!s.owner->delivered(incarnation, now, a.upload)) break;
      answers.push_back(answer_of(a));
    }
    if (s.around.jobs != nullptr && !answers.empty()) s.around.jobs->jobs_answered(std::move(answers));
    note_counts(news.uploads, news.bytes, news.pinned);
  }
  void operator()(const protocol::worker_gives_up& last) {
    s.owner->gave_up(incarnation, now, {static_cast<errc>(last.kind), last.reason, 0});
  }
  void operator()(const protocol::owner_irreplaceable&) { s.owner->cannot_be_replaced(incarnation); }
  void operator()(const protocol::partition_attached& news) {
    s.around.news->attached(
        {news.partition, news.bytes, news.pinned, nanoseconds(static_cast<std::int64_t>(news.took_ns))});
  }
  void operator()(const protocol::gpu_processes_seen& seen) {
    s.around.news->gpu_processes_seen(processes_in(seen));
  }

  void note_counts(std::uint64_t uploads, std::uint64_t bytes, bool pinned) const {
    s.around.news->progressed(uploads, bytes, pinned);
    s.waits.report_to(*s.around.news, s.around.flights->read(s.around.flight_page), now);
  }
};

/// Acts on what the group's orders and the process's reports mean for others.
void follow(self_pointer self, owner_communicator::orders what) {
  keeper_state& s = self->state;
  for (const protocol::batches_delivered& news : what.agreed) hear{self, s.owner->incarnation()}.take(news);
  if (what.snapshot) s.owner->keep_snapshot(std::move(*what.snapshot));
  if (what.held) s.around.news->snapshots_changed(*what.held);
  for (const group::communicator_state& state : what.told) s.around.news->communicator_changed(state);
  if (s.link && !what.send.empty()) s.link->expect(answers_to_communicate * what.send.size());
  for (protocol::wire_communicate& order : what.send) {
    if (s.link) s.link->send(std::move(order));
  }
  if (what.replace) s.owner->restart(now_of(self));
}

void note_end(self_pointer self, const owner_exited& news) {
  keeper_state& s = self->state;
  if (s.communicator && news.incarnation == s.owner->incarnation())
    follow(self, s.communicator->ended(s.owner->finishes_with(news.report)));
  const arena::flight_reading flight = s.around.flights->read(s.around.flight_page);
  if (news.incarnation == s.owner->incarnation())
    s.waits.report_to(*s.around.news, flight, now_of(self), false);
  const bool oom = news.report.ended_by(SIGKILL) && s.oom.explains_death(now_of(self));
  s.owner->exited(news.incarnation, now_of(self), {news.report, in_hand(flight), news.last_lines, oom});
  if (!s.owner->has_process()) s.link.reset();
}

// ---- polling ----------------------------------------------------------------------------------------------

/// Records a batch that the sink has been working on for a long time as taken.
void note_taken(keeper_state& s, const arena::flight_reading& flight, steady_time now) {
  if (std::exchange(s.flight, flight.word) != flight.word) s.flight_since = now;
  const auto mark = in_hand(flight);
  const upload_order* batch = mark ? s.owner->orders().find_by_mark(*mark) : nullptr;
  if (batch != nullptr && s.around.times)
    s.around.times->note(batch->position, batch_stage::taken, s.flight_since);
}

void look(self_pointer self) {
  keeper_state& s = self->state;
  const steady_time now = now_of(self);
  s.oom.look(now);
  if (const auto pid = s.owner->pid()) {
    const arena::flight_reading flight = s.around.flights->read(s.around.flight_page);
    note_taken(s, flight, now);
    s.waits.report_to(*s.around.news, flight, now);
    const auto facts = process::look_at(*pid);
    s.owner->look(now, {flight.heartbeats, flight.word, in_hand(flight), facts && facts->traced,
                        process::wait_channel(*pid)});
  } else {
    supervision::owner_sign start;
    start.wait_channel = s.around.process->current_start();
    s.owner->look(now, start);
  }
  if (s.communicator) follow(self, s.communicator->look(now));
  advance(self);
  if (s.link) s.link->expect(1);  // NVML's list comes unprompted, less often than this
}

void keep_looking(self_pointer self) {
  const config& settings = self->state.around.settings;
  const nanoseconds pause =
      std::min<nanoseconds>(look_every, rules_of(settings, self->state.around.jobs != nullptr).clocks.tick());
  self->delayed_send(owner_keeper_actor(self), pause, keeper_tick{});
}

owner_keeper_actor::behavior_type behave(self_pointer self, keeper_surroundings around) {
  keeper_state& s = self->state;
  s.around = std::move(around);
  if (s.around.settings.group.communicator != communicator_kind::none)
    s.communicator.emplace(s.around.settings.group.abort_timeout);
  s.owner = std::make_unique<supervision::owner_supervision>(
      rules_of(s.around.settings, s.around.jobs != nullptr), now_of(self));
  return {
      [self](const gpu_owner::open_device&) {
        self->state.owner->open(now_of(self));
        advance(self);
        keep_looking(self);
      },
      [&s](const gpu_owner::prepare_device& order) { prepare(s, order); },
      [&s](const gpu_owner::attach_partition& order) { attach(s, order); },
      [self](gpu_owner::upload_batches& more) {
        for (upload_order& o : more.orders) self->state.owner->order(std::move(o));
        advance(self);
      },
      [](const gpu_owner::buffers_released&) {},
      [self](const gpu_owner::close_device& order) {
        if (order.leave) {
          self->state.others = {};
          return self->quit();
        }
        self->state.owner->close(now_of(self), order.whole, order.at_most);
        advance(self);
      },
      [self](const gpu_owner::communicate& order) {
        keeper_state& state = self->state;
        if (state.communicator) follow(self, state.communicator->ordered(order, now_of(self)));
        advance(self);
      },
      [&s](const protocol::meet& all) { s.others = all.others; },
      [self](const owner_started& news) {
        self->state.link = news.link;
        self->state.owner->started(news.incarnation, news.pid);
        advance(self);
      },
      [self](const owner_refused& news) {
        self->state.owner->start_failed(news.incarnation, now_of(self), news.why);
        advance(self);
      },
      [self](owner_spoke& said) {
        std::visit(hear{self, said.incarnation}, said.message);
        advance(self);
      },
      [self](const owner_lost_link& news) {
        self->state.owner->link_closed(news.incarnation, now_of(self), news.reason);
        advance(self);
      },
      [self](const owner_exited& news) {
        note_end(self, news);
        advance(self);
      },
      [self](const restart_owner&) {
        self->state.owner->restart(now_of(self));
        advance(self);
      },
      [self](const keeper_tick&) {
        look(self);
        keep_looking(self);
      },
      [self](const wake_keeper&) {
        self->state.wake_at = never;
        advance(self);
      },
  };
}

}  // namespace

owner_keeper_actor spawn_owner_keeper(caf::actor_system& system, keeper_surroundings around) {
  return system.spawn(behave, std::move(around));
}

}  // namespace penstock::supervisor
