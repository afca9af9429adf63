// The outside view of a run: its record, control socket and metrics, and the measurements that they show.
#include "actors/caf/caf.hpp"
#include "actors/host/run.hpp"
#include "actors/host/standstill_meter.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/launcher_environment.hpp"
#include "runtime/base/log.hpp"
#include "runtime/group/rank_files.hpp"
#include "runtime/group/this_process.hpp"
#include "runtime/process/ticker.hpp"

#include <boost/asio/post.hpp>
#include <unistd.h>

#include <future>
#include <iterator>

namespace penstock::host {
namespace {

/// The rank of a session with this name. Also set if the session does not join the group, because it may
/// deliver the rest of the group's stream.
std::optional<control::rank_note> rank_named(const std::string& name) {
  const auto place = launcher_place_in(group::variable_of_this_process).value_or(std::nullopt);
  if (!place) return std::nullopt;
  const std::string suffix = group::with_rank("", place->rank);
  if (!name.ends_with(suffix)) return std::nullopt;
  return control::rank_note{place->job, name.substr(0, name.size() - suffix.size()), place->rank};
}

}  // namespace

void run::open_sockets(engine& e) {
  watch_progress(e);  // first: answers on the control socket use it
  if (kind_.control_socket) open_control_socket(e);
  if (!settings_.metrics.listen.empty()) open_metrics(e);
  measure_limits(e);
}

void run::close_sockets(engine& e) {
  std::promise<void> closed;
  boost::asio::post(e.io->context(), [&] {
    e.server.reset();
    e.metrics.reset();
    e.progress.reset();
    if (e.limits) e.limits->call();  // includes what happened after the last look
    e.limits.reset();
    board_.stalled(std::nullopt);  // nothing is due any more
    closed.set_value();
  });
  closed.get_future().wait();
}

void run::open_record() {
  record_ = std::make_unique<record_keeper>(record_source{settings_.name, started(), settings_.loader.limits.max,
                                                          kind_.work, rank_named(settings_.name), journal_,
                                                          make_request_handler(controls())});
}

/// The server is created, used and destroyed on the io thread. A socket that cannot be created is only a warning: the work does
/// not depend on it.
void run::open_control_socket(engine& e) {
  const std::string& name = settings_.name;
  auto bound = control::bind_session_socket(name, ::getpid(), rank_named(name));
  if (!bound) {
    log::warn("control", "{}; `penstock status` and the other verbs cannot reach this session", bound.error().message);
    return;
  }
  if (bound->renamed) {
    log::debug("control", "another session named '{}' is running; this one is '{}'", name,
               bound->path.stem().string());
  }
  board_.is_called(bound->path.stem().string());
  session_controls answers = controls();
  answers.status = [this, &e] { return shown_by(e).status; };
  answers.progress = [this, &e] { return shown_by(e); };
  answers.limits = [this, &e] { return limits_at(shown_by(e).status); };
  answers.metrics = [this, &e] { return metrics_page(e); };
  add_verbs(answers, e);
  boost::asio::post(e.io->context(), [&e, answers = std::move(answers),
                                      socket = std::make_shared<control::bound_socket>(std::move(*bound))] {
    e.server = std::make_unique<control::control_server>(e.io->context(), std::move(*socket),
                                                         make_request_handler(answers));
  });
}

std::string run::metrics_page(const engine& e) const {
  telemetry::metrics_facts facts = board_.metrics(now());
  facts.status = shown_by(e).status;
  facts.id = id();
  add_to_metrics(facts);
  return telemetry::metrics_text(facts, PENSTOCK_VERSION);
}

void run::open_metrics(engine& e) {
  boost::asio::post(e.io->context(), [this, &e] {
    auto opened = telemetry::metrics_server::open(e.io->context(), settings_.metrics.listen,
                                                  [this, &e] { return metrics_page(e); });
    if (!opened) return log::warn("metrics", "{}; this session has no metrics", opened.error().message);
    log::info("metrics", "http://{}/metrics", (*opened)->address());
    e.metrics = std::move(*opened);
  });
}

void run::watch_progress(engine& e) {
  const auto tell_news = [this](supervision::progress_watch::news what,
                                const std::optional<stall_report>& stalled, double stood,
                                telemetry::rates_told rates) {
    board_.measured(std::move(rates));
    announce(what, stalled, stood, kind_.progresses, board_, [this](event said) { tell(std::move(said)); });
  };
  e.progress = std::make_unique<progress_ticker>(*e.io, [this, &e] { return progress_of(e); }, tell_news);
}

void run::measure_limits(engine& e) {
  const auto meter = std::make_shared<limit_meter>();
  const auto standstill = std::make_shared<standstill_meter>(limit_meter::look_every);
  e.limits = std::make_unique<process::ticker>(*e.io, limit_meter::look_every, [this, meter, standstill, &e] {
    const auto stood = standstill->look();
    board_.looked(now(), stood.value_or(nanoseconds(0)));
    if (stood) {
      event told = event_of_standstill(*stood, std::chrono::system_clock::now(), kind_.work);
      log::warn("session", "{}", told.text);
      tell(std::move(told));
    }
    supervision::progress_facts facts = progress_of(e);
    std::vector<worker_look> workers = look_at_workers(facts.status, *e.flights, settings_.loader.limits.max);
    tune(facts, workers);
    if (e.remote_times)
      std::ranges::move(look_at_remote_workers(facts.status, *e.flights, settings_.loader.limits.max, e.remote_times), std::back_inserter(workers));
    const auto waited = std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(board_.waited_seconds(now())));
    board_.limited(meter->look(std::move(facts), times(), workers, board_.waits_since(), waited, board_.begun_at(), now()));
  });
}

void run::tune(const supervision::progress_facts& facts, const std::vector<worker_look>& workers) {
  tuning_.look(facts, board_.waited_seconds(now()), workers, now(),
               [this](const supervision::tuner_step& step) -> result<void> {
                 const std::string text = fmt::format("{} instead of {}: {}", counted(step.to, "worker"), step.from, step.why);
                 try {
                   change_workers(step.to, text);
                 } catch (const error& refused) {
                   return refuse(refused.code(), "{}", refused.what());
                 }
                 log::info("session", "{}", text);
                 return {};
               });
}

limits_told run::limits() const {
  return limits_at(told_status());
}

limits_told run::limits_at(session_status status) const {
  const bool ends = status.state == session_state::stopping || status.outcome != run_outcome::running;
  if (ends && !status.stalled) status.stalled = board_.status_before_end().stalled;
  const telemetry::limit_reading reading = board_.limits();
  telemetry::limit_context context = context_of(status, reading);
  context.cores = cores_;
  context.workers = workers_.load();
  context.work = kind_.work;
  context.pinned = board_.is_pinned();
  context.now = now();
  context.slowest = slowest_samples(context.now);
  telemetry::limit_advice advice = telemetry::advise(reading, context, settings_);
  return {reading, std::move(advice), std::move(context)};
}

}  // namespace penstock::host
