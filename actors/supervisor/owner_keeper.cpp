#include "actors/supervisor/owner_keeper.hpp"

#include "actors/protocol/config_bytes.hpp"
#include "actors/protocol/tensors.hpp"
#include "runtime/base/exit_codes.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/units.hpp"
#include "runtime/process/process_facts.hpp"
#include "runtime/supervision/hang_detector.hpp"
#include "runtime/supervision/restart_policy.hpp"

#include <caf/actor_system.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <csignal>
#include <map>
#include <set>

namespace penstock::supervisor {
namespace {

using namespace std::chrono_literals;

constexpr auto look_every = 250ms;
constexpr auto start_deadline = 120s;  // creating a context and registering the arena takes its time
constexpr auto kill_after_abort = 2s;
constexpr auto unkillable_after = 5s;
constexpr auto lost_link_deadline = 1s;  // one that ends closes its link first, then the driver cleans up


enum class phase : std::uint8_t { waiting, starting, speaking, ready, closing, closed, failed };

struct keeper_state {
  keeper_state() = default;
  ~keeper_state() = default;
  keeper_state(const keeper_state&) = delete;
  keeper_state& operator=(const keeper_state&) = delete;

  keeper_surroundings around;
  scheduler::scheduler_actor scheduler;
  std::unique_ptr<supervision::restart_policy> policy;
  supervision::hang_settings clocks;
  std::unique_ptr<supervision::hang_detector> hangs;
  phase now = phase::waiting;
  std::uint32_t incarnation = 0;
  std::optional<pid_t> pid;
  std::shared_ptr<protocol::owner_link> link;
  std::optional<protocol::worker_gives_up> farewell;
  bool known_to_all = false;  // the device was told to the session

  // What every incarnation has to be told.
  std::optional<protocol::prepare_owner> preparation;
  std::set<std::uint32_t> partitions;
  std::optional<std::string> snapshot;

  std::uint64_t era = 0;
  std::vector<protocol::wire_upload> unsent;                   // until the process can hear
  std::map<std::uint64_t, protocol::wire_upload> outstanding;  // sent or unsent, not acknowledged, by upload
  std::set<std::uint64_t> copied;                              // of these, whose slots it has read
  std::map<stream_position, std::uint32_t> killings;           // owners that a batch has killed
  bool irreplaceable = false;
  bool fruitful = false;  // acknowledged something since it was started
  bool operated = false;  // an operator ended it
  bool whole = false;     // the stream is over: the sink may finish
  bool finishing =
      false;  // whole, but the process that was to let its sink finish is gone: the next one does
  steady_time goodbye_until = never;
  std::uint32_t restarts = 0;
  nanoseconds waited_before{0};  // by sinks of earlier incarnations
  nanoseconds waited{0};

  std::optional<std::uint32_t> last_death;  // its incarnation; until uploads go on
  steady_time died{};
  steady_time started{};
  std::uint64_t flight = 0;  // what it is at, and since when
  steady_time flight_since{};
  steady_time kill_at = never;
  steady_time unkillable_at = never;
  std::optional<death_cause> condemned;
  bool opened = false;
  bool left_its_link = false;
};

using self_pointer = owner_keeper_actor::stateful_pointer<keeper_state>;

steady_time now_of(self_pointer self) {
  return self->clock().now();
}

std::string_view name_of(phase p) {
  switch (p) {
    case phase::waiting: return "idle";
    case phase::starting:
    case phase::speaking: return "starting";
    case phase::ready: return "ready";
    case phase::closing: return "stopping";
    case phase::closed: return "stopped";
    case phase::failed: break;
  }
  return "failed";
}

void tell_changes(const keeper_state& s) {
  s.around.news.changed({std::string(name_of(s.now)), s.pid, s.restarts, s.irreplaceable});
}

void say_goodbye(keeper_state& s) {
  s.now = phase::closing;
  s.kill_at = s.goodbye_until;
  s.link->send(protocol::stop_owner{s.whole});
}

void give_up(keeper_state& s, const failure& why) {
  if (s.now == phase::failed || s.now == phase::closed) return;
  s.now = phase::failed;
  tell_changes(s);
  s.around.news.gave_up(why);
  if (s.finishing) s.around.news.closed();
}

void start(self_pointer self) {
  keeper_state& s = self->state;
  ++s.incarnation;
  s.now = phase::starting;
  s.fruitful = false;
  s.operated = false;
  s.farewell.reset();
  s.condemned.reset();
  s.kill_at = s.goodbye_until;
  s.unkillable_at = never;
  s.opened = false;
  s.left_its_link = false;
  s.flight = 0;
  s.started = now_of(self);
  s.hangs->watch(s.around.flight_page, s.started);
  s.around.flights->clear(s.around.flight_page);
  s.around.process->start(s.incarnation);
  tell_changes(s);
}

void send_uploads(keeper_state& s, std::vector<protocol::wire_upload> uploads) {
  s.link->expect(2 * uploads.size());  // each is told of twice: copied, delivered
  s.link->send(protocol::upload_slots{std::move(uploads)});
}

/// Everything that the session and the scheduler have said so far, in the order in which it must be heard.
void brief(keeper_state& s, const protocol::hello& hello) {
  if (hello.magic != protocol::hello::expected_magic || hello.version != protocol::version) {
    const bool ours = hello.magic == protocol::hello::expected_magic;
    return give_up(
        s, {errc::protocol,
            fmt::format(
                "the GPU owner's program (pid {}) was refused: {}; install penstock-gpu and session of "
                "the same version",
                s.pid.value_or(0),
                ours ? fmt::format("it speaks protocol {}, this session {}", hello.version, protocol::version)
                     : std::string("it is not penstock's GPU owner")),
            0});
  }
  s.now = phase::speaking;
  protocol::open_owner open;
  open.incarnation = s.incarnation;
  open.flight_page = s.around.flight_page;
  open.config = protocol::config_as_bytes(s.around.settings);
  open.sink = s.around.sink;
  open.out = s.around.out;
  open.digests = s.around.digests;
  open.restores = s.snapshot.has_value();
  open.snapshot = s.snapshot.value_or("");
  s.link->send(open);
  if (s.preparation) s.link->send(*s.preparation);
  for (const std::uint32_t p : s.partitions) s.link->send(protocol::map_partition{p});
  if (!s.unsent.empty()) send_uploads(s, std::exchange(s.unsent, {}));
}

bool hears(const keeper_state& s) {
  return s.now == phase::speaking || s.now == phase::ready;
}

void prepare(keeper_state& s, const gpu_owner::prepare_device& order) {
  std::vector<tensor_spec> tensors;
  // Lengths that the layout adds are added there again.
  const batch_layout& slot = order.plan->slot;
  for (std::size_t i = 0; i < slot.described; ++i) tensors.push_back(slot.tensors[i].spec);
  s.preparation = protocol::prepare_owner{protocol::as_wire(tensors), order.plan->slot.rows_max,
                                          order.shape.slot_bytes, order.shape.slots, order.shape.partitions};
  if (hears(s)) s.link->send(*s.preparation);
}

void upload(keeper_state& s, const gpu_owner::upload_batches& more) {
  if (s.now == phase::failed || s.now == phase::closed) return;
  std::vector<protocol::wire_upload> fresh;
  for (const gpu_owner::upload_order& o : more.orders) {
    if (o.era != s.era) continue;  // of before a death that the scheduler had not heard of
    fresh.push_back({o.upload, o.position, o.epoch, o.sequence, o.partition, o.slot, o.samples});
    s.outstanding.emplace(o.upload, fresh.back());
  }
  if (fresh.empty()) return;
  if (hears(s)) {
    send_uploads(s, std::move(fresh));
  } else {
    s.unsent.insert(s.unsent.end(), std::make_move_iterator(fresh.begin()),
                    std::make_move_iterator(fresh.end()));
  }
}

// ---- killing ----------------------------------------------------------------------------------------------

void kill(keeper_state& s, steady_time now) {
  s.kill_at = never;
  s.unkillable_at = now + unkillable_after;
  s.around.process->signal(s.incarnation, SIGKILL);
}

/// Whoever's time is over is killed; whoever survives that ends the run: its device memory does not come
/// back.
void carry_out_sentence(keeper_state& s, steady_time now) {
  if (s.kill_at <= now) {
    const bool went_silent = s.left_its_link && s.now != phase::closing;
    if (!s.condemned && went_silent) {
      s.condemned = death_cause::protocol;
      log::warn("gpu", "the GPU owner (pid {}) is ended: it closed its link and lives", s.pid.value_or(0));
    }
    if (!s.condemned && !s.left_its_link) s.condemned = death_cause::hang;
    kill(s, now);
  }
  if (s.unkillable_at <= now) {
    s.unkillable_at = never;
    give_up(s,
            {errc::device_unavailable,
             fmt::format("the GPU owner (pid {}) survives SIGKILL: it waits in the kernel ({}), and what it "
                         "holds of the device is not free",
                         s.pid.value_or(0), process::wait_channel(s.pid.value_or(0))),
             0});
  }
}

/// It hangs: its handler may still say where.
void condemn(self_pointer self, death_cause cause, const std::string& why) {
  keeper_state& s = self->state;
  if (s.condemned) return;
  log::warn("gpu", "the GPU owner (pid {}) is ended: {}; it waits in {}", s.pid.value_or(0), why,
            process::wait_channel(s.pid.value_or(0)));
  s.condemned = cause;
  s.around.process->signal(s.incarnation, SIGABRT);
  s.around.process->signal(s.incarnation, SIGCONT);  // one that is stopped dies of it only when it goes on
  s.kill_at = now_of(self) + kill_after_abort;
}

/// It breaks the protocol: nothing that it says counts any more.
void fence(self_pointer self, const std::string& why) {
  keeper_state& s = self->state;
  if (s.condemned == death_cause::protocol) return;
  log::warn("gpu", "the GPU owner (pid {}) is ended: {}", s.pid.value_or(0), why);
  s.condemned = death_cause::protocol;
  s.farewell.reset();
  kill(s, now_of(self));
}

void lose_link(self_pointer self, const owner_lost_link& news) {
  keeper_state& s = self->state;
  if (news.incarnation != s.incarnation || !s.pid || s.now == phase::failed) return;
  if (!news.reason.empty()) return fence(self, news.reason);
  s.left_its_link = true;
  s.kill_at = std::min(s.kill_at, now_of(self) + lost_link_deadline);
}

// ---- the process speaks -----------------------------------------------------------------------------------

void note_times(const keeper_state& s, stream_position position, const protocol::wire_delivery& d) {
  if (!s.around.times) return;
  const auto note = [&](batch_stage stage, std::int64_t ns) {
    if (ns > 0) s.around.times->note(position, stage, steady_time(nanoseconds(ns)));
  };
  note(batch_stage::submitted, d.submitted_ns);
  note(batch_stage::copied, d.copied_ns);
  note(batch_stage::ready, d.ready_ns);
  note(batch_stage::taken, d.taken_ns);
  note(batch_stage::released, d.released_ns);
}

/// The owner's own stamps come with its acknowledgement; until then these tell who is waited for. A
/// conversion takes no longer than the message.
void note_copied(self_pointer self, const std::vector<std::uint64_t>& uploads) {
  keeper_state& s = self->state;
  if (!s.around.times) return;
  const steady_time now = now_of(self);
  for (const std::uint64_t upload : uploads) {
    const auto it = s.outstanding.find(upload);
    if (it == s.outstanding.end()) continue;
    s.around.times->note(it->second.position, batch_stage::copied, now);
    s.around.times->note(it->second.position, batch_stage::ready, now);
  }
}

void note_recovery(self_pointer self) {
  keeper_state& s = self->state;
  if (!s.last_death) return;
  const double since = std::chrono::duration<double>(now_of(self) - s.died).count();
  s.around.news.recovered(*std::exchange(s.last_death, std::nullopt), since);
}

void take_copies(self_pointer self, protocol::slots_copied& news) {
  keeper_state& s = self->state;
  for (const std::uint64_t upload : news.uploads) {
    if (!s.outstanding.contains(upload) || !s.copied.insert(upload).second)
      return fence(self,
                   fmt::format("it says that it has copied upload {}, which it was not to copy", upload));
  }
  note_recovery(self);
  note_copied(self, news.uploads);
  self->send(s.scheduler, scheduler::slots_released{std::move(news.uploads)});
}

void take_deliveries(self_pointer self, const protocol::batches_delivered& news) {
  keeper_state& s = self->state;
  for (const protocol::wire_delivery& d : news.deliveries) {
    const auto it = s.outstanding.find(d.upload);
    if (it == s.outstanding.end() || s.copied.erase(d.upload) == 0)
      return fence(self,
                   fmt::format("it says that it has delivered upload {}, which it has not copied", d.upload));
    s.killings.erase(it->second.position);
    note_times(s, it->second.position, d);
    s.outstanding.erase(it);
    const auto digest = news.digests ? std::optional(d.digest) : std::nullopt;
    if (s.around.deliveries->add({d.upload, digest}))
      self->send(s.scheduler, scheduler::batches_delivered{s.around.deliveries});
  }
  s.fruitful = s.fruitful || !news.deliveries.empty();
  if (news.snapshots) s.snapshot = news.snapshot;
  s.waited = nanoseconds(static_cast<std::int64_t>(news.waited_ns));
  s.around.news.progressed(news.uploads, news.bytes, news.pinned);
  s.around.news.waited(s.waited_before + s.waited);
}

void note_opened(self_pointer self, const protocol::owner_opened& what) {
  keeper_state& s = self->state;
  if (s.now == phase::starting || std::exchange(s.opened, true))
    return fence(self, "it says at the wrong time that it has opened its device");
  if (s.now != phase::speaking) return;  // it is told to go already
  s.now = phase::ready;
  s.policy->child_ready(now_of(self));
  if (s.finishing) say_goodbye(s);
  if (!std::exchange(s.known_to_all, true)) {
    s.around.news.opened({what.kind, what.name, what.uuid.empty() ? std::nullopt : std::optional(what.uuid)});
  } else {
    s.around.news.reopened(s.pid.value_or(0));
  }
  tell_changes(s);
}

void listen(self_pointer self, owner_spoke& said) {
  keeper_state& s = self->state;
  if (said.incarnation != s.incarnation || s.now == phase::failed) return;
  if (s.condemned == death_cause::protocol) return;
  if (const auto* hello = std::get_if<protocol::hello>(&said.message)) {
    if (s.now != phase::starting) return fence(self, "it says hello twice");
    brief(s, *hello);
  } else if (const auto* opened = std::get_if<protocol::owner_opened>(&said.message)) {
    note_opened(self, *opened);
  } else if (auto* copied = std::get_if<protocol::slots_copied>(&said.message)) {
    take_copies(self, *copied);
  } else if (const auto* delivered = std::get_if<protocol::batches_delivered>(&said.message)) {
    take_deliveries(self, *delivered);
  } else if (const auto* seen = std::get_if<protocol::gpu_processes_seen>(&said.message)) {
    std::vector<gpu_process> processes;
    for (const protocol::wire_gpu_process& p : seen->processes)
      processes.push_back({static_cast<std::int64_t>(p.pid), p.bytes});
    s.around.news.processes_seen(std::move(processes));
  } else if (auto* last = std::get_if<protocol::worker_gives_up>(&said.message)) {
    if (s.farewell) return fence(self, "it says its last word twice");
    s.farewell = std::move(*last);
  } else {
    s.irreplaceable = true;
    tell_changes(s);
  }
}

// ---- the process dies -------------------------------------------------------------------------------------

/// Its own doing, as far as one can tell from outside.
bool is_own_doing(const process::exit_report& report) {
  if (report.ending == process::exit_report::how::exited) return report.code == exit_codes::poisoned;
  if (report.ending != process::exit_report::how::signalled) return false;
  const std::set<int> faults{SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE, SIGSYS, SIGTRAP};
  return faults.contains(report.code);
}

/// The batch that the sink had in its hands; after a poisoned context else the oldest that is not done.
const protocol::wire_upload* suspect_of(const keeper_state& s, bool poisoned) {
  const arena::flight_reading flight = s.around.flights->read(s.around.flight_page);
  if (flight.state.at == arena::phase::loading) {
    for (const auto& [number, order] : s.outstanding) {
      if ((number & generation_mask) == flight.state.generation) return &order;
    }
  }
  return poisoned && !s.outstanding.empty() ? &s.outstanding.begin()->second : nullptr;
}

std::string describe(const protocol::wire_upload& batch) {
  constexpr std::size_t shown = 8;
  std::string samples;
  for (std::size_t i = 0; i < std::min(shown, batch.samples.size()); ++i)
    samples += fmt::format("{}{}", i == 0 ? "" : ", ", batch.samples[i]);
  if (batch.samples.size() > shown) samples += fmt::format(" and {} more", batch.samples.size() - shown);
  return fmt::format("batch {} of epoch {} (samples {})", batch.sequence, batch.epoch, samples);
}

owner_death_report as_report(const keeper_state& s, const process::exit_report& report,
                             const protocol::wire_upload* suspect, steady_time now) {
  owner_death_report d;
  d.pid = s.pid.value_or(0);
  d.incarnation = s.incarnation;
  d.cause = death_cause::unknown;
  if (report.ending == process::exit_report::how::signalled) {
    d.cause = death_cause::signal;
    d.signal = process::signal_name(report.code);
  } else if (report.ending == process::exit_report::how::exited) {
    d.cause = death_cause::exit;
    d.code = report.code;
  }
  if (s.operated) d.cause = death_cause::stopped;
  // One that was ending by itself when we lost patience with its silence did not die of us.
  const bool shot = report.ending == process::exit_report::how::signalled && report.code == SIGKILL;
  if (s.condemned && (shot || *s.condemned != death_cause::protocol)) d.cause = *s.condemned;
  if (suspect != nullptr) {
    d.epoch = suspect->epoch;
    d.sequence = suspect->sequence;
  }
  if (s.farewell) d.last_words = s.farewell->reason;
  d.time = report.noticed;
  d.lived_seconds = std::chrono::duration<double>(now - s.started).count();
  return d;
}

/// Nothing when another process may help.
std::optional<failure> final_word(const keeper_state& s, const process::exit_report& report,
                                  const std::string& last_lines) {
  const bool exited = report.ending == process::exit_report::how::exited;
  if (exited && report.code == exit_codes::hardware) {
    return failure{
        errc::device_hardware,
        fmt::format("the GPU reports broken hardware: {}", s.farewell ? s.farewell->reason : last_lines), 0};
  }
  if (s.farewell && static_cast<errc>(s.farewell->kind) != errc::device_poisoned) {
    return failure{static_cast<errc>(s.farewell->kind), s.farewell->reason, 0};
  }
  if (s.irreplaceable) {
    return failure{
        errc::sink,
        fmt::format("the GPU owner's process (pid {}) died, and with it what the device program knew: it "
                    "keeps state and gives no snapshots (implement snapshot() and restore())",
                    s.pid.value_or(0)),
        0};
  }
  return std::nullopt;
}

/// What the scheduler is to do with a batch that has killed two owners. Fails the run if that is the rule.
std::optional<scheduler::poison_batch> judge(keeper_state& s, const protocol::wire_upload& suspect) {
  constexpr std::uint32_t proof = 2;
  if (++s.killings[suspect.position] < proof) return std::nullopt;
  const std::string what =
      fmt::format("{} has killed {} GPU owners{}", describe(suspect), proof,
                  s.farewell ? fmt::format("; the last one said: {}", s.farewell->reason) : "");
  if (s.around.settings.gpu.on_poison_batch == poison_rule::fail) {
    give_up(s, {errc::device_poisoned, what + "; [gpu] on_poison_batch = \"skip\" would leave it out", 0});
    return std::nullopt;
  }
  log::warn("gpu", "{}; it is left out", what);
  s.killings.erase(suspect.position);
  return scheduler::poison_batch{
      suspect.position, fmt::format("its batch ({} of epoch {}) has killed {} GPU owners", suspect.sequence,
                                    suspect.epoch, proof)};
}

supervision::death as_death(const keeper_state& s, const process::exit_report& report) {
  supervision::death d;
  if (report.ending == process::exit_report::how::exited &&
      exit_codes::is_permanent(report.code))
    d.ending = supervision::death::how::no_restart;
  if (s.operated) d.ending = supervision::death::how::operated;
  d.fruitful = s.fruitful;
  return d;
}

void bury(self_pointer self, const owner_exited& news) {
  keeper_state& s = self->state;
  if (news.incarnation != s.incarnation || s.now == phase::failed || s.now == phase::closed) return;
  const steady_time now = now_of(self);
  const pid_t pid = s.pid.value_or(0);
  s.link.reset();
  s.hangs->forget(s.around.flight_page);
  s.kill_at = s.unkillable_at = never;
  // It died before it had done anything: the death before it will not be followed by a recovery.
  s.last_death.reset();
  const bool poisoned =
      news.report.ending == process::exit_report::how::exited && news.report.code == exit_codes::poisoned;
  const bool own_doing = is_own_doing(news.report) || s.condemned == death_cause::hang;
  const auto* suspect = own_doing && !s.operated ? suspect_of(s, poisoned) : nullptr;
  const owner_death_report report = as_report(s, news.report, suspect, now);
  s.pid.reset();
  s.waited_before += std::exchange(s.waited, nanoseconds(0));

  if (s.now == phase::closing) {
    const bool quietly = news.report.ending == process::exit_report::how::exited && news.report.code == 0;
    if (quietly || !s.whole) {
      s.now = phase::closed;
      tell_changes(s);
      s.around.news.closed();
      return;
    }
    s.finishing = true;  // it died before its sink had finished
  }

  log::warn("gpu", "the GPU owner (pid {}) ended: {}{}", pid,
            report.signal ? *report.signal : fmt::format("exit {}", report.code.value_or(-1)),
            suspect ? ", with " + describe(*suspect) + " in its hands" : "");
  s.around.news.died(report);
  if (auto why = final_word(s, news.report, news.last_lines)) return give_up(s, *why);
  if (s.finishing && s.condemned) {
    return give_up(
        s, {errc::sink, fmt::format("the sink of the GPU owner (pid {}) did not finish in time", pid), 0});
  }
  std::optional<scheduler::poison_batch> poison;
  if (suspect != nullptr) poison = judge(s, *suspect);
  if (s.now == phase::failed) return;

  s.last_death = news.incarnation;
  s.died = now;
  s.outstanding.clear();
  s.copied.clear();
  s.unsent.clear();
  ++s.era;
  self->send(s.scheduler, scheduler::owner_lost{s.era, std::move(poison)});
  const supervision::death d = as_death(s, news.report);
  const supervision::restart_decision next = s.policy->child_died(now, d);
  if (next.act != supervision::restart_decision::what::restart) {
    s.last_death.reset();
    const std::string words = s.farewell ? s.farewell->reason : news.last_lines;
    return give_up(
        s, {errc::device_unavailable,
            fmt::format("the GPU owner (pid {}) ended {}{}{}{}", pid,
                        report.signal ? "by " + *report.signal
                                      : fmt::format("with exit code {}", report.code.value_or(-1)),
                        d.ending == supervision::death::how::no_restart
                            ? " and would do so again"
                            : fmt::format(", after {} restarts: more often without a batch between than "
                                          "[gpu.restart] allows",
                                          s.restarts),
                        words.empty() ? "" : ": ", words),
            0});
  }
  ++s.restarts;
  s.now = phase::waiting;
  tell_changes(s);
  if (next.at <= now) return start(self);
  self->delayed_send(owner_keeper_actor(self), next.at - now, start_owner{s.incarnation});
}

// ---- looking ----------------------------------------------------------------------------------------------

/// A batch that the sink works on for long is seen to be there.
void note_taken(keeper_state& s, std::uint64_t flight, steady_time now) {
  if (std::exchange(s.flight, flight) != flight) s.flight_since = now;
  const auto* batch = suspect_of(s, false);
  if (batch != nullptr && s.around.times)
    s.around.times->note(batch->position, batch_stage::taken, s.flight_since);
}

void look_for_hang(self_pointer self, steady_time now) {
  keeper_state& s = self->state;
  if (s.now == phase::closing) return;  // it has its time to go
  const std::uint32_t page = s.around.flight_page;
  const arena::flight_reading seen = s.around.flights->read(page);
  note_taken(s, seen.word, now);
  const auto facts = process::look_at(*s.pid);
  const supervision::child_sign sign{page,
                                     s.now == phase::ready,
                                     seen.heartbeats,
                                     seen.word,
                                     seen.state.at == arena::phase::loading,
                                     facts && facts->traced};
  for (const supervision::hang_verdict& v : s.hangs->look(now, {sign})) {
    const std::string time = duration_for_people(v.since);
    const auto* batch = suspect_of(s, false);
    switch (v.kind) {
      case supervision::hang::start:
        condemn(self, death_cause::hang, fmt::format("it was not ready {} after its start", time));
        break;
      case supervision::hang::heartbeat:
        condemn(self, death_cause::heartbeat, fmt::format("no heartbeat for {}", time));
        break;
      case supervision::hang::item:
        condemn(self, death_cause::hang,
                fmt::format("its sink has had {} in its hands for {}",
                            batch != nullptr ? describe(*batch) : "a batch", time));
        break;
    }
  }
}

void look(self_pointer self) {
  keeper_state& s = self->state;
  if (s.now == phase::closed || s.now == phase::failed) return;
  const steady_time now = now_of(self);
  if (s.pid) {
    look_for_hang(self, now);
    carry_out_sentence(s, now);
  }
  // NVML's view comes unasked, less often than this.
  if (s.link) s.link->expect(1);
  const nanoseconds pause = std::min<nanoseconds>(look_every, s.clocks.tick());
  self->delayed_send(owner_keeper_actor(self), pause, keeper_tick{});
}

void close(self_pointer self, const gpu_owner::close_device& order) {
  keeper_state& s = self->state;
  if (s.now == phase::closed) return;
  const steady_time until = now_of(self) + order.at_most;
  if (s.now == phase::closing) {  // somebody has lost patience
    s.kill_at = std::min(s.kill_at, until);
    return carry_out_sentence(s, now_of(self));
  }
  s.whole = order.whole;
  s.goodbye_until = until;
  if (s.pid && hears(s)) {
    say_goodbye(s);
    return carry_out_sentence(s, now_of(self));
  }
  // Nobody hears. When the stream is whole, the process that is on its way lets its sink finish; else it is
  // killed with the session.
  s.finishing = order.whole && s.now != phase::failed;
  if (s.finishing) return;
  s.now = phase::closed;
  s.around.news.closed();
}

/// An operator's order: never counts, and does not wait.
void restart(self_pointer self) {
  keeper_state& s = self->state;
  if (s.now == phase::waiting && s.incarnation > 0) {
    s.policy->forgive();
    return start(self);
  }
  if (!s.pid || !hears(s)) return;
  s.operated = true;
  s.policy->forgive();
  kill(s, now_of(self));
}

owner_keeper_actor::behavior_type behave(self_pointer self, keeper_surroundings around) {
  keeper_state& s = self->state;
  s.around = std::move(around);
  supervision::restart_settings rules;
  rules.intensity_max = s.around.settings.gpu.restart.intensity.max;
  rules.intensity_within = s.around.settings.gpu.restart.intensity.within;
  const config& settings = s.around.settings;
  s.clocks = {start_deadline, settings.loader.hang.heartbeat_timeout, settings.gpu.hang.batch_timeout};
  s.hangs = std::make_unique<supervision::hang_detector>(s.clocks);
  s.policy = std::make_unique<supervision::restart_policy>(rules, s.around.settings.sampler.seed);
  return {
      [self](const gpu_owner::open_device&) {
        start(self);
        look(self);
      },
      [&s](const gpu_owner::prepare_device& order) { prepare(s, order); },
      [&s](const gpu_owner::attach_partition& order) {
        s.partitions.insert(order.partition);
        if (hears(s)) s.link->send(protocol::map_partition{order.partition});
      },
      [&s](const gpu_owner::upload_batches& more) { upload(s, more); },
      [](const gpu_owner::buffers_released&) {},
      [self](const gpu_owner::close_device& order) {
        if (!order.leave) return close(self, order);
        self->state.scheduler = scheduler::scheduler_actor();
        self->quit();
      },
      [&s](const meet_scheduler& who) { s.scheduler = who.scheduler; },
      [&s](const owner_started& news) {
        if (news.incarnation != s.incarnation) return;
        s.pid = news.pid;
        s.link = news.link;
        tell_changes(s);
      },
      [&s](const owner_refused& news) {
        if (news.incarnation == s.incarnation) give_up(s, news.why);
      },
      [self](owner_spoke& said) { listen(self, said); },
      [self](const owner_lost_link& news) { lose_link(self, news); },
      [self](const owner_exited& news) { bury(self, news); },
      [self](const restart_owner&) { restart(self); },
      [self](const keeper_tick&) { look(self); },
      [self](const start_owner& order) {
        if (self->state.now == phase::waiting && order.incarnation == self->state.incarnation) start(self);
      },
  };
}

}  // namespace

owner_keeper_actor spawn_owner_keeper(caf::actor_system& system, keeper_surroundings around) {
  return system.spawn(behave, std::move(around));
}

}  // namespace penstock::supervisor
