// Collects the facts for progress_watch and reports a stall in status, log and journal.
#include "actors/session/pipeline_view.hpp"
#include "actors/session/session_body.hpp"
#include "actors/supervisor/owner_rules.hpp"

namespace penstock {

supervision::progress_facts Session::body::progress_now(const engine& e) const {
  supervision::progress_facts f;
  f.status = session::look_closer(board_.status(), *e.flights, now());
  f.under_way = times_->under_way();
  f.released = times_->released();
  f.buffers = settings_.gpu.buffers;
  f.sacrificial_place = settings_.loader.limits.max;
  f.worker_start_deadline = settings_.loader.hang.start_deadline;
  f.owner_start_deadline = supervisor::owner_start_deadline;
  f.consumer_waits = taking_;
  f.owner_is_elsewhere = has_keeper();
  f.standing = session::standing_of(f.status, *e.flights);
  return f;
}

void Session::body::watch_progress(engine& e) {
  const auto facts = [this, all = &e] { return progress_now(*all); };
  const auto tell_news = [this](supervision::progress_watch::news what,
                                const std::optional<stall_report>& stalled, double stood,
                                std::optional<double> rate) {
    board_.measured(rate);
    session::announce(what, stalled, stood, "stream", board_, [this](event said) { tell(std::move(said)); });
  };
  e.progress = std::make_unique<session::progress_ticker>(*e.io, facts, tell_news);
}

}  // namespace penstock
