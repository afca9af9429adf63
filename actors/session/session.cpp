#include "actors/gpu_owner/batch_body.hpp"
#include "actors/gpu_owner/batch_sink.hpp"
#include "actors/protocol/actor_settings.hpp"
#include "actors/protocol/config_bytes.hpp"
#include "actors/session/board.hpp"
#include "actors/session/control_verbs.hpp"
#include "actors/session/pipeline_view.hpp"
#include "actors/session/process_logs.hpp"
#include "actors/session/session_actor.hpp"
#include "actors/session/session_events.hpp"
#include "actors/supervisor/owner_keeper.hpp"
#include "runtime/base/home_process.hpp"
#include "runtime/base/log.hpp"
#include "runtime/config/validate.hpp"
#include "runtime/control/event_journal.hpp"
#include "runtime/control/metrics_server.hpp"
#include "runtime/dataset/factory.hpp"
#include "runtime/device/exclusive_use.hpp"
#include "runtime/process/crash_notes.hpp"
#include "runtime/process/lifeline.hpp"
#include "runtime/process/process_facts.hpp"

#include <penstock/session.hpp>

#include <caf/actor_system.hpp>
#include <caf/send.hpp>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <future>
#include <limits>
#include <thread>

namespace penstock {
namespace {

using namespace std::chrono_literals;

// The stream's own actors, of which only the owner and the session actor may block, have threads of their
// own.
constexpr std::size_t actor_threads = 2;
constexpr auto accounts_deadline = 2s;
constexpr std::chrono::milliseconds patience_of_stop = 10s;  // finish the sample at hand
constexpr std::chrono::milliseconds patience_of_destruction = 200ms;
constexpr std::chrono::milliseconds patience_with_callbacks = 200ms;  // for events that are not told yet
constexpr auto owner_close_deadline = 15s;                            // a little more than its keeper's
constexpr auto pool_close_deadline = 3s;  // beyond the workers' patience: their reaping

steady_time now() {
  return std::chrono::steady_clock::now();
}

std::uint32_t workers_of(const config& settings) {
  const std::uint32_t wanted = settings.loader.workers.value_or(process::usable_cores());
  return std::clamp<std::uint32_t>(wanted, 1, settings.loader.limits.max);
}

std::string_view name_of(placement_rule placement) {
  return placement == placement_rule::process ? "process" : "embedded";
}

log::level as_log_level(log_level level) {
  switch (level) {
    case log_level::debug: return log::level::debug;
    case log_level::info: return log::level::info;
    case log_level::warn: return log::level::warn;
    case log_level::error: return log::level::error;
    case log_level::off: break;
  }
  return log::level::off;
}

/// Planned samples of a part of the stream. All batches but an epoch's last are full.
std::uint64_t samples_in(const plan& order, schedule::stream_range range) {
  const std::uint64_t per_epoch = order.batches_per_epoch();
  if (per_epoch == 0) return 0;
  const auto before = [&](stream_position p) {
    return p / per_epoch * order.expected_samples() + p % per_epoch * order.settings().batch_size;
  };
  return before(range.end) - before(range.first);
}

/// The state is read in the constructor; its bytes need not live longer.
session_options without_state(session_options options) {
  options.state = {};
  return options;
}

/// What the session knows of the dataset before any worker exists. Nothing for datasets that only the worker
/// knows.
result<std::optional<prepared_dataset>> prepare(const config& settings) {
  if (settings.dataset.type == dataset_type::custom) return std::optional<prepared_dataset>();
  auto prepared = prepare_dataset(settings);
  if (!prepared) return tl::unexpected(std::move(prepared.error()));
  return std::optional(std::move(*prepared));
}

/// Runs work that makes or ends actors on a thread of its own, and waits for it. CAF leaves a reference to a
/// system's logger in a thread_local of whoever spawns, and the system's destructor waits until those are
/// gone: for ever if such a thread lives on. In exit() the main thread's is even destroyed before static
/// objects are, so a static Session would release it twice. And threads that are born on this one never take
/// a signal that is meant for the program around us.
template <class Work>
void on_a_fresh_thread(Work work) {
  std::packaged_task<void()> task(std::move(work));
  auto done = task.get_future();
  {
    const process::all_signals_blocked quiet;
    std::thread(std::move(task)).join();
  }
  done.get();
}

/// Two threads in next() would each get half a stream.
class only_taker {
 public:
  explicit only_taker(std::atomic<bool>& taken) : taken_(taken) {
    if (taken_.exchange(true))
      throw error({errc::usage, "two threads take batches of one session at the same time", 0});
  }
  ~only_taker() { taken_ = false; }
  only_taker(const only_taker&) = delete;
  only_taker& operator=(const only_taker&) = delete;

 private:
  std::atomic<bool>& taken_;
};

}  // namespace

class Session::body {
 public:
  body(config settings, session_options options);
  ~body();

  [[nodiscard]] const home_process& process() const noexcept { return process_; }
  std::optional<Batch> next();
  std::optional<Batch> next_of(std::uint64_t epoch, std::uint64_t& iteration);
  bool run_for(std::chrono::milliseconds at_most);
  void start();
  void stop(std::chrono::milliseconds patience) noexcept;
  void close() noexcept;
  void pause(bool paused);
  void scale(std::uint32_t workers);
  void restart(std::uint32_t worker);
  void drain(std::uint32_t worker);
  bool lift_quarantine(std::uint64_t sample, bool for_good);
  [[nodiscard]] session_status status() const { return board_.status(); }
  [[nodiscard]] run_report report();
  [[nodiscard]] std::vector<std::byte> state();

 private:
  // Everything that exists only while the session runs, in the order in which it is made; undone in reverse
  // (handles to actors and the objects that they share before the actor system, the io thread after what
  // lives on it).
  struct engine {
    process::lifeline rope;
    std::shared_ptr<arena::arena> memory;
    std::shared_ptr<arena::flight_recorders> flights;
    std::optional<prepared_dataset> dataset;
    std::shared_ptr<device::device> device;  // none when another process has it
    std::unique_ptr<protocol::actor_settings> settings;
    std::unique_ptr<caf::actor_system> system;
    std::unique_ptr<process::io_thread> io;
    std::unique_ptr<control::control_server> server;
    std::unique_ptr<control::metrics_server> metrics;
    std::shared_ptr<supervisor::worker_processes> processes;
    std::shared_ptr<supervisor::owner_process> owner_process;
    std::optional<device::exclusive_use> lock;  // of the GPU
    supervisor::owner_keeper_actor keeper;      // in front of owner_process
    gpu_owner::gpu_owner_actor owner;           // the owner itself, or its keeper
    scheduler::scheduler_actor scheduler;
    supervisor::supervisor_actor supervisor;
    session::session_actor session;
    std::shared_ptr<scheduler::report_pile> reports = std::make_shared<scheduler::report_pile>();
    std::shared_ptr<scheduler::delivery_pile> deliveries = std::make_shared<scheduler::delivery_pile>();
  };

  result<void> try_start();
  void spawn_actors(engine& e);
  void spawn_owner(engine& e);
  void owner_opened(engine& e, const device::identity& what);
  void spawn_keeper(engine& e);
  supervisor::owner_callbacks callbacks_of_owner(engine& e);
  void open_control_socket(engine& e);
  void open_metrics(engine& e);
  supervisor::supervisor_settings supervisor_settings_now() const;
  supervisor::worker_callbacks callbacks_of_workers();
  void fail(const failure& why);
  void tell(event what) { journal_->note(std::move(what)); }
  void tell_ended(run_outcome how);
  std::optional<Batch> take();
  std::optional<Batch> take_of(std::uint64_t epoch, bool from_its_first);
  void check_worker(std::uint32_t worker) const;
  std::optional<Batch> hand_out(gpu_owner::ready_batch ready, steady_time demanded);
  std::optional<Batch> end_of_stream();
  void seek(schedule::stream_range range);
  std::optional<schedule::stream_range> wait_for_range_of(std::uint64_t epoch);
  scheduler::stream_accounts accounts();
  void wait_for_pool();
  void wait_for_owner(bool whole);
  bool run_embedded(steady_time until);
  bool run_elsewhere(steady_time until);
  [[nodiscard]] bool elsewhere() const { return settings_.gpu.placement == placement_rule::process; }

  const home_process process_;
  const config settings_;
  const session_options options_;
  std::optional<schedule::stream_state> resumed_;
  std::uint32_t workers_;  // scale() may change it until started_
  session::board board_;
  const std::shared_ptr<control::event_journal> journal_ = std::make_shared<control::event_journal>();
  const std::shared_ptr<batch_times> times_ = std::make_shared<batch_times>();
  session::process_logs logs_;
  session::worker_watch watch_;  // only the supervisor's news
  std::shared_ptr<gpu_owner::hand_over> consumer_ = std::make_shared<gpu_owner::hand_over>();
  std::shared_ptr<batch_home> home_;

  mutable std::mutex mutex_;  // of what follows
  std::unique_ptr<engine> engine_;
  std::shared_ptr<const plan> plan_;
  std::shared_ptr<const device::transfer_plan> transfer_;
  schedule::stream_range range_;
  scheduler::stream_accounts final_accounts_;  // when the engine is gone
  std::condition_variable plan_or_end_;
  std::unique_ptr<control::event_caller> listener_;
  bool started_ = false;
  bool stopped_ = false;
  bool failed_ = false;
  bool pool_closed_ = false;
  bool closed_ = false;
  std::optional<std::uint32_t> scaled_while_starting_;
  std::condition_variable pool_closed_signal_;
  bool owner_closed_ = false;  // its process, with placement = "process"
  std::condition_variable owner_closed_signal_;
  std::unique_ptr<gpu_owner::batch_sink> sink_;  // of run_for() with an embedded owner; the consumer's thread
  std::chrono::milliseconds patience_ = patience_of_stop;  // of the end

  std::atomic<bool> taking_ = false;  // a thread is in next()

  // Only the consumer's thread; next_position_ is set once by the session actor, before the first batch.
  std::uint64_t voyage_ = 0;
  stream_position next_position_ = 0;
  std::uint64_t iteration_ = 0;  // grows with every range over an epoch, and with next()
  bool ended_ = false;
};

// ---- life
// ----------------------------------------------------------------------------------------------------

Session::body::body(config settings, session_options options)
    : settings_(value_or_throw(config_file::accept(std::move(settings), config_file::process_environment()))),
      options_(without_state(options)),
      workers_(workers_of(settings_)),
      board_(settings_.name, std::string(name_of(settings_.gpu.placement))) {
  if (!options.state.empty()) resumed_ = value_or_throw(schedule::parse_state(options.state));
  board_.configured(workers_);
  log::set_level(as_log_level(settings_.log.level));
  if (settings_.loader.start == start_rule::eager) start();
}

Session::body::~body() {
  // A session that was told to stop ends in its own time; one that is just dropped ends now.
  bool told = false;
  {
    const std::lock_guard hold(mutex_);
    told = stopped_;
  }
  if (!told) stop(patience_of_destruction);
  close();
}

void Session::body::start() {
  {
    const std::lock_guard hold(mutex_);
    if (started_ || stopped_) return;
    started_ = true;
  }
  board_.begun(now());
  tell(session::event_of(event_kind::run_started, fmt::format("the run begins with {} workers", workers_)));
  if (options_.on_event) {
    const process::all_signals_blocked quiet;
    listener_ = std::make_unique<control::event_caller>(journal_, options_.on_event);
  }
  if (auto ok = try_start(); !ok) fail(ok.error());
}

result<void> Session::body::try_start() {
  auto e = std::make_unique<engine>();
  auto rope = process::lifeline::create();
  if (!rope) return tl::unexpected(std::move(rope.error()));
  e->rope = std::move(*rope);
  auto memory = arena::arena::create();
  if (!memory) return tl::unexpected(std::move(memory.error()));
  e->memory = std::make_shared<arena::arena>(std::move(*memory));
  const std::uint32_t places = settings_.loader.limits.max + 1;  // one more for the sacrificial worker
  auto flights = arena::flight_recorders::create(places + 1);    // and for the owner's process
  if (!flights) return tl::unexpected(std::move(flights.error()));
  e->flights = std::make_shared<arena::flight_recorders>(std::move(*flights));
  auto dataset = prepare(settings_);
  if (!dataset) return tl::unexpected(std::move(dataset.error()));
  e->dataset = std::move(*dataset);
  if (e->dataset) {
    for (const std::string& notice : e->dataset->notices) log::warn("dataset", "{}", notice);
  }
  if (!elsewhere()) {
    auto device = device::make_device(settings_.gpu.device);
    if (!device) return tl::unexpected(std::move(device.error()));
    e->device = std::move(*device);
  }

  on_a_fresh_thread([&] {
    e->settings = std::make_unique<protocol::actor_settings>(actor_threads);
    e->system = std::make_unique<caf::actor_system>(*e->settings);
    e->io = std::make_unique<process::io_thread>();
    spawn_actors(*e);
  });
  if (options_.control_socket) open_control_socket(*e);
  if (!settings_.metrics.listen.empty()) open_metrics(*e);
  if (!elsewhere()) {
    home_ = std::make_shared<batch_home>(e->device,
                                         [owner = e->owner, consumer = consumer_](std::uint32_t buffer) {
                                           if (consumer->give_back(buffer))
                                             caf::anon_send(owner, gpu_owner::buffers_released{});
                                         });
  }
  caf::anon_send(e->owner, gpu_owner::open_device{});
  const std::lock_guard hold(mutex_);
  engine_ = std::move(e);
  if (scaled_while_starting_)
    caf::anon_send(engine_->supervisor, supervisor::scale_pool{*scaled_while_starting_});
  return {};
}

void Session::body::spawn_actors(engine& e) {
  // Actors that do not exist yet are reached through the engine, which outlives them all.
  engine* const all = &e;
  if (elsewhere()) {
    spawn_keeper(e);
  } else {
    spawn_owner(e);
  }

  scheduler::scheduler_news news;
  news.death_judged = [all](const scheduler::judgement& verdict) {
    caf::anon_send(all->supervisor, supervisor::death_judged{verdict});
  };
  news.sacrificial_wanted = [all](bool wanted) {
    caf::anon_send(all->supervisor, supervisor::want_sacrificial{wanted});
  };
  news.worker_lied = [all](worker_ref who, const std::string& reason) {
    caf::anon_send(all->supervisor, supervisor::fence_worker{who, reason});
  };
  news.sent_home = [all](worker_ref who) {
    caf::anon_send(all->supervisor, supervisor::worker_sent_home{who});
  };
  const auto leases = std::make_shared<scheduler::lease_counts>(settings_.loader.limits.max + 1);
  news.leases = leases;
  news.sample_failed = [this](const scheduler::lost_sample& lost) {
    log::warn("scheduler", "sample {} ({}) failed: {}", lost.sample, lost.name, lost.reason);
    board_.sample_failed(lost);
    tell(session::event_of_failed(lost));
  };
  news.sample_quarantined = [this, all](const scheduler::lost_sample& lost) {
    log::warn("scheduler", "sample {} ({}) is quarantined: it killed {} workers", lost.sample, lost.name,
              lost.attempts);
    board_.sample_quarantined(lost);
    tell(session::event_of_quarantined(lost));
    caf::anon_send(all->session, session::sample_quarantined{lost});
  };
  news.delivered = [this](const schedule::delivery& batch, std::uint64_t epoch) {
    board_.delivered(batch, epoch);
    if (elsewhere()) board_.batch_taken(epoch, now(), now());
  };
  news.batch_recovered = [this](std::uint64_t epoch, std::uint64_t sequence) {
    tell(session::event_of_recovered(epoch, sequence));
  };
  news.epoch_done = [this](const schedule::epoch_account& done) { tell(session::event_of(done)); };
  news.counted = [this](std::uint64_t stale, std::uint64_t quarantined) {
    board_.counted(stale, quarantined);
  };
  news.gave_up = [this](const failure& why) { fail(why); };
  news.stream_finished = [this](std::uint64_t voyage) { consumer_->finish(voyage); };
  news.times = times_;
  e.scheduler = scheduler::spawn_scheduler(*e.system, e.owner, std::move(news));
  if (e.keeper) caf::anon_send(e.keeper, supervisor::meet_scheduler{e.scheduler});

  supervisor::worker_program program;
  program.command = settings_.loader.command;
  program.environment = supervisor::worker_environment(settings_.loader.env);
  program.lifeline = e.rope.read_end.get();
  program.arena = e.memory->fd();
  program.flight = e.flights->fd();
  program.index = e.dataset ? e.dataset->index.get() : -1;
  supervisor::worker_callbacks calls;
  calls.started = [this, all](worker_ref who, pid_t pid, std::shared_ptr<protocol::worker_link> link) {
    logs_.started(who);
    caf::anon_send(all->supervisor, supervisor::worker_started{who, pid, std::move(link)});
  };
  calls.start_failed = [all](worker_ref who, const failure& why) {
    caf::anon_send(all->supervisor, supervisor::start_refused{who, why});
  };
  calls.spoke = [all](worker_ref who, protocol::from_worker&& message) {
    if (auto* report = std::get_if<protocol::batch_loaded>(&message)) {
      if (all->reports->add({who, std::move(*report)}))
        caf::anon_send(all->scheduler, scheduler::leases_reported{all->reports});
    } else {
      caf::anon_send(all->supervisor, supervisor::worker_spoke{who, std::move(message)});
    }
  };
  calls.link_closed = [all](worker_ref who, const std::string& reason) {
    caf::anon_send(all->supervisor, supervisor::worker_lost_link{who, reason});
  };
  calls.wrote = [this](worker_ref who, std::string_view line) { logs_.wrote(who, line); };
  calls.ended = [this, all](worker_ref who, const process::exit_report& report,
                            const process::output_tail& tail) {
    logs_.ended(who);
    caf::anon_send(all->supervisor,
                   supervisor::worker_exited{who, report, process::last_lines_without_stack(tail.text(), 10),
                                             process::stack_in(tail.text())});
  };
  e.processes = std::make_shared<supervisor::worker_processes>(*e.io, std::move(program), std::move(calls));

  supervisor::supervisor_news supervision;
  supervision.worker_described = [all](worker_ref who, const protocol::dataset_described& dataset) {
    caf::anon_send(all->session, session::worker_described{who, dataset});
  };
  supervision.changed = [this](const std::vector<worker_status>& workers, bool degraded,
                               std::uint32_t started, std::uint32_t restarts) {
    board_.workers_changed(workers, degraded, started, restarts);
    for (event& one : watch_.look(workers, degraded)) tell(std::move(one));
  };
  supervision.worker_died = [this](const death_report& death) {
    board_.worker_died(death);
    tell(session::event_of(death));
  };
  supervision.gave_up = [this](const failure& why) { fail(why); };
  supervision.pool_closed = [this] {
    const std::lock_guard hold(mutex_);
    pool_closed_ = true;
    pool_closed_signal_.notify_all();
  };
  e.supervisor = supervisor::spawn_supervisor(*e.system, {supervisor_settings_now(), e.scheduler, e.processes,
                                                          e.flights, leases, std::move(supervision)});

  session::session_surroundings around;
  around.settings = settings_;
  around.workers = workers_;
  around.partitions = settings_.loader.limits.max + 1;
  if (e.dataset) around.expected = e.dataset->description;
  around.request = {options_.batches, resumed_};
  around.memory = e.memory;
  around.planned = [this](std::shared_ptr<const plan> order,
                          std::shared_ptr<const device::transfer_plan> transfer,
                          schedule::stream_range range) {
    board_.planned(samples_in(*order, range));
    tell(session::event_of(event_kind::stream_opened,
                           fmt::format("{} batches an epoch of {} samples", order->batches_per_epoch(),
                                       order->expected_samples())));
    const std::lock_guard hold(mutex_);
    plan_ = std::move(order);
    transfer_ = std::move(transfer);
    range_ = range;
    next_position_ = range.first;
    plan_or_end_.notify_all();
  };
  around.quarantine_known = [this](const std::vector<quarantine_report>& known) {
    board_.quarantine_known(known);
  };
  around.failed = [this](const failure& why) { fail(why); };
  e.session = session::spawn_session(*e.system, std::move(around));
  caf::anon_send(e.session, session::meet{e.owner, e.scheduler, e.supervisor});
}

void Session::body::spawn_owner(engine& e) {
  gpu_owner::owner_surroundings owner;
  owner.device = e.device;
  owner.consumer = consumer_;
  engine* const all = &e;
  owner.opened = [this, all](const device::identity& what) { owner_opened(*all, what); };
  owner.failed = [this](const failure& why) {
    board_.device_state("failed");
    tell(session::event_of(event_kind::device_failed, why.message));
    fail(why);
  };
  owner.slots_released = [all](std::vector<std::uint64_t> uploads) {
    caf::anon_send(all->scheduler, scheduler::slots_released{std::move(uploads)});
  };
  owner.progressed = [this](std::uint64_t uploads, std::uint64_t bytes, bool pinned) {
    board_.uploaded(uploads, bytes, pinned);
  };
  owner.times = times_;
  e.owner = gpu_owner::spawn_gpu_owner(*e.system, std::move(owner));
}

void Session::body::owner_opened(engine& e, const device::identity& what) {
  if (what.uuid && !settings_.gpu.share) {
    auto ours = device::exclusive_use::take(*what.uuid);
    if (!ours) return fail(ours.error());
    e.lock.emplace(std::move(*ours));
  }
  board_.device_opened(what);
  tell(session::event_of(event_kind::device_opened, what.name));
  log::debug("gpu", "opened {}", what.name);
  caf::anon_send(e.session, session::device_ready{});
}

supervisor::owner_callbacks Session::body::callbacks_of_owner(engine& e) {
  engine* const all = &e;
  supervisor::owner_callbacks calls;
  calls.started = [this, all](std::uint32_t incarnation, pid_t pid,
                              std::shared_ptr<protocol::owner_link> link) {
    logs_.begin("gpu", incarnation);
    caf::anon_send(all->keeper, supervisor::owner_started{incarnation, pid, std::move(link)});
  };
  calls.start_failed = [all](std::uint32_t incarnation, const failure& why) {
    caf::anon_send(all->keeper, supervisor::owner_refused{incarnation, why});
  };
  calls.spoke = [all](std::uint32_t incarnation, protocol::from_owner&& message) {
    caf::anon_send(all->keeper, supervisor::owner_spoke{incarnation, std::move(message)});
  };
  // A process that closes its link and lives on is noticed by its silence, or when it is told to stop.
  calls.link_closed = [](std::uint32_t, const std::string& reason) {
    if (!reason.empty()) log::warn("gpu", "the GPU owner's link was cut: {}", reason);
  };
  calls.wrote = [this](std::uint32_t incarnation, std::string_view line) {
    logs_.wrote("gpu", incarnation, line);
  };
  calls.ended = [this, all](std::uint32_t incarnation, const process::exit_report& report,
                            const process::output_tail& tail) {
    logs_.ended("gpu");
    caf::anon_send(all->keeper, supervisor::owner_exited{incarnation, report, tail.last_lines(10)});
  };
  return calls;
}

void Session::body::spawn_keeper(engine& e) {
  engine* const all = &e;
  const supervisor::owner_descriptors fds{e.rope.read_end.get(), e.memory->fd(), e.flights->fd()};
  e.owner_process = std::make_shared<supervisor::owner_process>(*e.io, fds, callbacks_of_owner(e));

  supervisor::keeper_surroundings around;
  around.settings = settings_;
  around.sink = options_.sink;
  around.out = options_.sink_out;
  around.digests = options_.digests;
  around.flight_page = settings_.loader.limits.max + 1;
  around.process = e.owner_process;
  around.deliveries = e.deliveries;
  around.times = times_;
  around.flights = e.flights;
  around.news.opened = [this, all](const device::identity& what) { owner_opened(*all, what); };
  around.news.changed = [this](const supervisor::owner_facts& facts) {
    board_.owner_changed(facts.state, facts.pid, facts.restarts);
  };
  around.news.died = [this](const owner_death_report& death) {
    board_.owner_died(death);
    tell(session::event_of(death));
  };
  around.news.progressed = [this](std::uint64_t uploads, std::uint64_t bytes, bool pinned) {
    board_.uploaded(uploads, bytes, pinned);
  };
  around.news.waited = [this](nanoseconds in_all) { board_.waited(in_all); };
  around.news.gave_up = [this](const failure& why) { fail(why); };
  around.news.closed = [this] {
    const std::lock_guard hold(mutex_);
    owner_closed_ = true;
    owner_closed_signal_.notify_all();
  };
  e.keeper = supervisor::spawn_owner_keeper(*e.system, std::move(around));
  e.owner = e.keeper;
}

void Session::body::open_control_socket(engine& e) {
  auto bound = control::bind_session_socket(settings_.name, ::getpid());
  if (!bound) {
    log::warn("control", "{}; `penstock status` and the other verbs cannot reach this session",
              bound.error().message);
    return;
  }
  if (bound->renamed) {
    log::warn("control", "another session named '{}' is running; this one is '{}'", settings_.name,
              bound->path.stem().string());
  }
  engine* const all = &e;
  session::session_controls controls;
  controls.status = [this, all] { return session::look_closer(board_.status(), *all->flights, now()); };
  controls.waited_seconds = [this] { return board_.waited_seconds(); };
  controls.times = times_;
  controls.events = [journal = journal_](std::uint64_t after, std::size_t limit) {
    return journal->events_after(after, limit);
  };
  controls.deaths = [this] { return board_.report({}, now()).deaths; };
  controls.stop = [this](bool at_once) { stop(at_once ? std::chrono::milliseconds(0) : patience_of_stop); };
  controls.pause = [this](bool paused) { pause(paused); };
  controls.scale = [this](std::uint32_t workers) { scale(workers); };
  controls.restart = [this](std::uint32_t worker) { restart(worker); };
  controls.drain = [this](std::uint32_t worker) { drain(worker); };
  if (e.keeper) controls.restart_owner = [all] { caf::anon_send(all->keeper, supervisor::restart_owner{}); };
  controls.quarantine = [this] { return board_.report({}, now()).quarantine; };
  controls.lift_quarantine = [this](std::uint64_t sample, bool for_good) {
    return lift_quarantine(sample, for_good);
  };
  controls.logs = &logs_.book();
  controls.workers_max = settings_.loader.limits.max;
  // Constructed, used and closed on the io thread.
  boost::asio::post(e.io->context(),
                    [all, controls, socket = std::make_shared<control::bound_socket>(std::move(*bound))] {
                      all->server = std::make_unique<control::control_server>(
                          all->io->context(), std::move(*socket), session::make_request_handler(controls));
                    });
}

/// A port that is taken is a warning, not a failure: the stream matters more than its numbers.
void Session::body::open_metrics(engine& e) {
  engine* const all = &e;
  boost::asio::post(e.io->context(), [this, all] {
    auto opened = control::metrics_server::open(all->io->context(), settings_.metrics.listen, [this, all] {
      control::metrics_facts facts = board_.metrics(now());
      facts.status = session::look_closer(std::move(facts.status), *all->flights, now());
      facts.under_way = times_->under_way();
      facts.stages = times_->histograms();
      return control::metrics_text(facts, PENSTOCK_VERSION);
    });
    if (!opened) return log::warn("metrics", "{}; this session has no metrics", opened.error().message);
    log::info("metrics", "http://{}/metrics", (*opened)->address());
    all->metrics = std::move(*opened);
  });
}

supervisor::supervisor_settings Session::body::supervisor_settings_now() const {
  const loader_config& l = settings_.loader;
  supervisor::supervisor_settings s;
  s.pool.restart = supervision::settings_of(l.restart);
  s.pool.workers = workers_;
  s.pool.min_ready = std::min(l.limits.min, workers_);
  s.pool.sacrificial_place = l.limits.max;
  s.pool.seed = settings_.sampler.seed;
  s.hang = {l.hang.start_deadline, l.hang.heartbeat_timeout, l.hang.item_timeout};
  s.memory_max_bytes = l.limits.memory.bytes;
  s.recycle_after_samples = l.limits.recycle_after_samples;
  s.slots_per_worker = l.slots_per_worker;
  s.exclusive = settings_.gpu.exclusive;
  s.config = protocol::config_as_bytes(settings_);
  return s;
}

/// From any thread. The run is over; workers are sent home, the consumer gets the reason.
void Session::body::fail(const failure& why) {
  if (board_.ended(run_outcome::failed, why, now()))
    tell(session::event_of(event_kind::run_failed, why.message));
  consumer_->fail(why);
  const std::lock_guard hold(mutex_);
  failed_ = true;
  plan_or_end_.notify_all();
  if (engine_ && engine_->supervisor)
    caf::anon_send(engine_->supervisor, supervisor::close_pool{patience_of_destruction});
}

void Session::body::stop(std::chrono::milliseconds patience) noexcept {
  if (board_.stopping()) tell(session::event_of(event_kind::stopping, "the session was told to stop"));
  const std::lock_guard hold(mutex_);
  patience_ = std::min(patience_, patience);
  stopped_ = true;  // before the consumer wakes and asks why
  consumer_->stop();
  plan_or_end_.notify_all();
  if (engine_) caf::anon_send(engine_->supervisor, supervisor::close_pool{patience});
}

void Session::body::pause(bool paused) {
  if (board_.paused(paused)) {
    tell(paused ? session::event_of(event_kind::paused, "no new work is handed out")
                : session::event_of(event_kind::resumed, "work is handed out again"));
  }
  const std::lock_guard hold(mutex_);
  if (engine_) caf::anon_send(engine_->scheduler, scheduler::pause_stream{paused});
}

void Session::body::scale(std::uint32_t workers) {
  const std::uint32_t most = settings_.loader.limits.max;
  if (workers < 1 || workers > most) {
    throw error({errc::usage,
                 fmt::format("{} workers: it has to be 1 to {} ([loader.limits] max)", workers, most), 0});
  }
  const auto there = static_cast<std::uint32_t>(board_.status().workers.size());
  {
    const std::lock_guard hold(mutex_);
    // Places that were used before keep their memory.
    if (transfer_ && workers > there) {
      const auto shape = value_or_throw(session::geometry_of(settings_, transfer_->slot, most + 1));
      value_or_throw(arena::check_memory(session::memory_need_of(settings_, shape, workers - there),
                                         arena::memory_limits()));
    }
    if (!started_) workers_ = workers;
    if (engine_) caf::anon_send(engine_->supervisor, supervisor::scale_pool{workers});
    if (started_ && !engine_) scaled_while_starting_ = workers;
  }
  board_.configured(workers);
  tell(session::event_of(event_kind::scaled, fmt::format("{} workers are wanted", workers)));
}

void Session::body::check_worker(std::uint32_t worker) const {
  const session_status now_there = board_.status();
  if (std::ranges::find(now_there.workers, worker, &worker_status::id) != now_there.workers.end()) return;
  throw error({errc::usage,
               now_there.workers.empty() ? std::string("no worker has been started yet")
                                         : fmt::format("there is no worker {}", worker),
               0});
}

void Session::body::restart(std::uint32_t worker) {
  check_worker(worker);
  const std::lock_guard hold(mutex_);
  if (engine_) caf::anon_send(engine_->supervisor, supervisor::restart_worker{worker});
}

void Session::body::drain(std::uint32_t worker) {
  check_worker(worker);
  const std::lock_guard hold(mutex_);
  if (engine_) caf::anon_send(engine_->supervisor, supervisor::drain_worker{worker});
}

bool Session::body::lift_quarantine(std::uint64_t sample, bool for_good) {
  if (!board_.quarantine_lifted(sample)) return false;
  const std::lock_guard hold(mutex_);
  if (!engine_) return true;
  caf::anon_send(engine_->scheduler, scheduler::lift_quarantine{sample});
  if (for_good) caf::anon_send(engine_->session, session::quarantine_released{sample});
  return true;
}

/// The workers are gone, or their time is over. Meanwhile stop() may shorten it.
void Session::body::wait_for_pool() {
  std::unique_lock hold(mutex_);
  if (!engine_) return;
  caf::anon_send(engine_->supervisor, supervisor::close_pool{patience_});
  const steady_time begin = now();
  while (!pool_closed_ && now() < begin + patience_ + pool_close_deadline)
    pool_closed_signal_.wait_for(hold, 50ms);
}

/// The owner's process has let its sink finish and is gone, or its time is over.
void Session::body::wait_for_owner(bool whole) {
  std::unique_lock hold(mutex_);
  if (!engine_ || !engine_->keeper) return;
  caf::anon_send(engine_->owner, gpu_owner::close_device{whole, false});
  owner_closed_signal_.wait_for(hold, owner_close_deadline, [&] { return owner_closed_; });
}

void Session::body::close() noexcept {
  {
    const std::lock_guard hold(mutex_);
    closed_ = true;
  }
  if (board_.ended_if_running(run_outcome::stopped, now())) tell_ended(run_outcome::stopped);
  wait_for_pool();
  sink_.reset();
  if (home_) home_->close();
  scheduler::stream_accounts last = accounts();
  engine* e = nullptr;
  {
    const std::lock_guard hold(mutex_);
    e = engine_.get();
    if (e != nullptr) final_accounts_ = std::move(last);
  }
  if (e == nullptr) {  // it never ran, or is closed already
    if (listener_) listener_->stop(patience_with_callbacks);
    return;
  }
  // From the outside in: nobody asks any more, no process speaks, the device rests, the actors go.
  std::promise<void> deaf;
  boost::asio::post(e->io->context(), [&] {
    e->server.reset();
    e->metrics.reset();
    deaf.set_value();
  });
  deaf.get_future().wait();
  e->processes->shut_down();
  wait_for_owner(false);
  if (e->owner_process) e->owner_process->shut_down();
  caf::anon_send(e->owner, gpu_owner::close_device{});
  caf::anon_send(e->scheduler, scheduler::stop_scheduling{});
  caf::anon_send(e->session, session::leave{});
  caf::anon_send_exit(e->supervisor, caf::exit_reason::user_shutdown);
  // All have been told to go; only then may the handles be dropped that they know each other by.
  e->system->await_all_actors_done();
  if (listener_) listener_->stop(patience_with_callbacks);
  const std::lock_guard hold(mutex_);
  on_a_fresh_thread([&] { engine_.reset(); });
}

// ---- batches
// -------------------------------------------------------------------------------------------------

std::optional<Batch> Session::body::next() {
  const only_taker here(taking_);
  ++iteration_;
  return take();
}

std::optional<Batch> Session::body::next_of(std::uint64_t epoch, std::uint64_t& iteration) {
  const only_taker here(taking_);
  const bool from_its_first = iteration == 0;
  if (from_its_first) iteration = ++iteration_;
  if (iteration != iteration_) {
    throw error({errc::usage,
                 fmt::format("this range over epoch {} is out of date: the session goes on elsewhere", epoch),
                 0});
  }
  return take_of(epoch, from_its_first);
}

std::optional<Batch> Session::body::take() {
  {
    const std::lock_guard hold(mutex_);
    if (closed_) throw error({errc::usage, "this session is closed", 0});
  }
  if (elsewhere()) {
    throw error({errc::usage,
                 "[gpu] placement = \"process\" keeps batches in the owner's process: call run_for() instead "
                 "of taking "
                 "them, or set placement to \"embedded\"",
                 0});
  }
  start();
  const steady_time demanded = now();
  while (true) {
    auto taken = consumer_->take();
    board_.waited(consumer_->waited());
    if (auto* why = std::get_if<failure>(&taken)) throw error(std::move(*why));
    if (std::holds_alternative<gpu_owner::hand_over::stream_ended>(taken)) return end_of_stream();
    auto& ready = std::get<gpu_owner::ready_batch>(taken);
    if (ready.voyage == voyage_) return hand_out(std::move(ready), demanded);
    home_->give_back(ready.buffer);  // of before the last seek
  }
}

std::optional<Batch> Session::body::take_of(std::uint64_t epoch, bool from_its_first) {
  {
    const std::lock_guard hold(mutex_);
    if (closed_) throw error({errc::usage, "this session is closed", 0});
  }
  start();
  const auto range = wait_for_range_of(epoch);
  if (!range) return take();  // failed or stopped before there was a plan: says so
  const bool inside = next_position_ >= range->first && next_position_ < range->end;
  if (from_its_first ? next_position_ != range->first : !inside && next_position_ != range->end) seek(*range);
  if (next_position_ < range->end) return take();
  bool last = false;
  {
    const std::lock_guard hold(mutex_);
    last = next_position_ >= range_.end;
  }
  return last ? end_of_stream() : std::nullopt;
}

bool Session::body::run_for(std::chrono::milliseconds at_most) {
  value_or_throw(gpu_owner::check_sink(options_.sink, options_.sink_out));
  const steady_time until = now() + at_most;
  return elsewhere() ? run_elsewhere(until) : run_embedded(until);
}

bool Session::body::run_embedded(steady_time until) {
  while (now() < until) {
    auto batch = next();
    if (!batch) {
      // A stream that was stopped is not over for the sink: somebody may go on with it.
      const bool whole = board_.status().outcome == run_outcome::finished || options_.batches;
      if (sink_ && whole) value_or_throw(std::exchange(sink_, {})->finish());
      return true;
    }
    if (!sink_) {
      std::shared_ptr<device::device> device;
      {
        const std::lock_guard hold(mutex_);
        device = engine_->device;
      }
      sink_ = value_or_throw(gpu_owner::make_sink(options_.sink, options_.sink_out, std::move(device)));
    }
    value_or_throw(sink_->take(*batch));
    batch->release();
  }
  return false;
}

bool Session::body::run_elsewhere(steady_time until) {
  start();
  const auto told = consumer_->take_until(until);
  if (!told) return false;
  if (const auto* why = std::get_if<failure>(&*told)) throw error(*why);
  // All is acknowledged, or somebody wants the end: then what the sink has counts, and it does not finish.
  bool whole = false;
  {
    const std::lock_guard hold(mutex_);
    whole = !stopped_;
    next_position_ = range_.end;
  }
  wait_for_owner(whole);
  end_of_stream();
  if (const auto after = consumer_->take_until(now()); after && std::holds_alternative<failure>(*after))
    throw error(std::get<failure>(*after));  // the sink failed at its end
  return true;
}

std::optional<schedule::stream_range> Session::body::wait_for_range_of(std::uint64_t epoch) {
  std::unique_lock hold(mutex_);
  plan_or_end_.wait(hold, [&] { return plan_ || failed_ || stopped_; });
  if (!plan_) return std::nullopt;
  const std::uint64_t batches = plan_->batches_per_epoch();
  if (batches > 0 && epoch >= std::numeric_limits<stream_position>::max() / batches)
    throw error({errc::usage, fmt::format("there is no epoch {}", epoch), 0});
  return schedule::stream_range{epoch * batches, (epoch + 1) * batches};
}

void Session::body::seek(schedule::stream_range range) {
  ++voyage_;
  for (const gpu_owner::ready_batch& dropped : consumer_->begin_voyage(voyage_))
    home_->give_back(dropped.buffer);
  next_position_ = range.first;
  ended_ = false;
  board_.ended(run_outcome::running, std::nullopt, now());
  const std::lock_guard hold(mutex_);
  // Beyond the epoch the stream is prepared as far as the config's epochs go.
  range_ = {range.first, std::max(range.end, settings_.sampler.epochs * plan_->batches_per_epoch())};
  if (engine_) caf::anon_send(engine_->scheduler, scheduler::seek_stream{voyage_, range_});
}

std::optional<Batch> Session::body::hand_out(gpu_owner::ready_batch ready, steady_time demanded) {
  const std::uint64_t upload = ready.upload;
  const std::uint64_t epoch = ready.epoch;
  next_position_ = ready.position + 1;
  std::shared_ptr<const device::transfer_plan> transfer;
  {
    const std::lock_guard hold(mutex_);
    transfer = transfer_;
  }
  Batch batch = batch_access::make(std::move(ready), std::move(transfer), home_);
  const auto digest = options_.digests ? std::optional(batch.digest()) : std::nullopt;
  board_.batch_taken(epoch, demanded, now());
  times_->note(next_position_ - 1, batch_stage::taken, now());
  const std::lock_guard hold(mutex_);
  if (engine_ && engine_->deliveries->add({upload, digest}))
    caf::anon_send(engine_->scheduler, scheduler::batches_delivered{engine_->deliveries});
  return batch;
}

std::optional<Batch> Session::body::end_of_stream() {
  if (std::exchange(ended_, true)) return std::nullopt;
  bool whole = false;
  {
    const std::lock_guard hold(mutex_);
    whole = !stopped_ && plan_ && next_position_ >= settings_.sampler.epochs * plan_->batches_per_epoch();
  }
  const run_outcome how = whole ? run_outcome::finished : run_outcome::stopped;
  if (board_.ended(how, std::nullopt, now())) tell_ended(how);
  return std::nullopt;
}

void Session::body::tell_ended(run_outcome how) {
  tell(how == run_outcome::finished
           ? session::event_of(event_kind::run_finished, "everything that was asked for is delivered")
           : session::event_of(event_kind::run_stopped, "the run was stopped"));
}

scheduler::stream_accounts Session::body::accounts() {
  auto promise = std::make_shared<std::promise<scheduler::stream_accounts>>();
  auto answer = promise->get_future();
  {
    const std::lock_guard hold(mutex_);
    if (!engine_) return final_accounts_;
    caf::anon_send(engine_->scheduler, scheduler::tell_accounts{std::move(promise)});
  }
  if (answer.wait_for(accounts_deadline) != std::future_status::ready) return {};
  return answer.get();
}

run_report Session::body::report() {
  return board_.report(accounts().epochs, now());
}

std::vector<std::byte> Session::body::state() {
  return schedule::serialise(accounts().state);
}

// ---- the public face
// -----------------------------------------------------------------------------------------

Session::Session(config settings, session_options options)
    : body_(std::make_unique<body>(std::move(settings), options)) {}
Session::~Session() {
  // A forked copy has no threads to end, and ending the workers is not its business. Its memory goes with it.
  if (body_ && body_->process().left()) static_cast<void>(body_.release());
}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&& other) noexcept {
  Session taken(std::move(other));
  std::swap(body_, taken.body_);  // ours ends with it
  return *this;
}

Session::body& Session::held() const {
  if (!body_) throw error({errc::usage, "this Session was moved from", 0});
  if (body_->process().left()) {
    throw error({errc::usage,
                 fmt::format("this Session belongs to process {}, from which this one was forked",
                             body_->process().pid()),
                 0});
  }
  return *body_;
}
std::optional<Batch> Session::next() {
  return held().next();
}
bool Session::run_for(std::chrono::milliseconds at_most) {
  return held().run_for(at_most);
}
void Session::stop(std::chrono::milliseconds patience) noexcept {
  if (body_ && !body_->process().left()) body_->stop(patience);
}
void Session::close() noexcept {
  if (body_ && !body_->process().left()) body_->close();
}
void Session::pause() {
  held().pause(true);
}
void Session::resume() {
  held().pause(false);
}
void Session::scale(std::uint32_t workers) {
  held().scale(workers);
}
void Session::restart(std::uint32_t worker) {
  held().restart(worker);
}
void Session::drain(std::uint32_t worker) {
  held().drain(worker);
}
bool Session::retry_quarantined(std::uint64_t sample) {
  return held().lift_quarantine(sample, false);
}
bool Session::release_quarantined(std::uint64_t sample) {
  return held().lift_quarantine(sample, true);
}
session_status Session::status() const {
  return held().status();
}
run_report Session::report() const {
  return held().report();
}
std::vector<std::byte> Session::state() const {
  return held().state();
}
Session::Epoch Session::epoch(std::uint64_t number) {
  static_cast<void>(held());
  return {*this, number};
}
std::optional<Batch> Session::Epoch::next() {
  return owner_->held().next_of(number_, iteration_);
}
Session::Epoch::iterator Session::Epoch::begin() {
  if (std::exchange(begun_, true))
    throw error({errc::usage, fmt::format("this range over epoch {} was begun before", number_), 0});
  return iterator(*this);
}
void Session::Epoch::iterator::past_the_end() {
  throw error({errc::usage, "this iterator is at the end of its epoch", 0});
}

Session::outline Session::dry_run(const config& given) {
  const config settings = value_or_throw(config_file::accept(given, config_file::process_environment()));
  outline o;
  o.workers = workers_of(settings);
  const auto prepared = value_or_throw(prepare(settings));
  if (!prepared) return o;
  const dataset_description& d = prepared->description;
  const auto order = value_or_throw(session::plan_of(settings, d));
  const auto layout = value_or_throw(lay_out(d.tensors, settings.sampler.batch_size));
  const auto shape = value_or_throw(session::geometry_of(settings, layout, settings.loader.limits.max + 1));
  value_or_throw(
      arena::check_memory(session::memory_need_of(settings, shape, o.workers), arena::memory_limits()));
  value_or_throw(process::find_program(settings.loader.command.front()));
  o.samples = d.samples;
  o.batches_per_epoch = order.batches_per_epoch();
  o.expected_samples = order.expected_samples();
  o.slot_bytes = shape.slot_bytes;
  o.arena_bytes = shape.partition_bytes() * o.workers;
  o.fingerprint = d.fingerprint;
  o.notices = prepared->notices;
  return o;
}

}  // namespace penstock
