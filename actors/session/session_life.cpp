#include "actors/caf/caf.hpp"
#include "actors/host/fresh_thread.hpp"
#include "actors/session/session_body.hpp"
#include "actors/session/shared_listing.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/units.hpp"
#include "runtime/base/worker_places.hpp"
#include "runtime/config/spelling.hpp"
#include "runtime/config/validate.hpp"
#include "runtime/device/decoder_choice.hpp"
#include "runtime/process/process_facts.hpp"

#include <chrono>
#include <functional>

namespace penstock {
namespace {

host::run_kind kind_of(const session_options& options) {
  host::run_kind kind;
  kind.placement = [](const config& settings) -> std::string_view {
    return settings.gpu.placement == placement_rule::process ? "process" : "embedded";
  };
  kind.progresses = "stream";
  kind.control_socket = options.control_socket;
  kind.ends = options.ends;
  kind.on_event = options.on_event;
  kind.files = options.files;
  return kind;
}

/// Logs the progress of indexing tar shards every few seconds: nothing else happens until the index is built.
std::function<void(const index_progress&)> indexing_logged() {
  static constexpr auto said_every = std::chrono::seconds(5);
  return
      [next = std::chrono::steady_clock::now() + std::chrono::seconds(1)](const index_progress& now) mutable {
        if (std::chrono::steady_clock::now() < next) return;
        next = std::chrono::steady_clock::now() + said_every;
        if (now.waiting)
          log::info("dataset", "waiting for another process, which is listing the same dataset");
        else
          log::info("dataset", "indexing shards: {} of {}", bytes_for_people(now.bytes),
                    bytes_for_people(now.all));
      };
}

/// The checked settings, with the launcher's rank if the session joins a group.
config accepted(config settings, const session_options& options) {
  if (options.join_group)
    settings = value_or_throw(
        session::settings_as_rank(std::move(settings), value_or_throw(session::place_of_this_process())));
  config values =
      value_or_throw(config_file::accept(std::move(settings), config_file::process_environment()));
  if (!options.join_group) value_or_throw(session::check_alone(values));
  // Decided once: the session never changes its decoder.
  const auto decoder = value_or_throw(device::choose_decoder(values));
  if (!decoder.notice.empty())
    log::warn("gpu", "[image] decoder = \"{}\": {}", config_file::spelling(values.image.decoder),
              decoder.notice);
  values.image.decoder = decoder.by;
  return values;
}

std::unique_ptr<session::group_side> group_of(const config& settings, const session_options& options) {
  if (!options.join_group) return nullptr;
  return std::make_unique<session::group_side>(value_or_throw(
      session::membership_of(settings, options, value_or_throw(session::place_of_this_process()))));
}

/// The state is parsed in the constructor; its bytes need not live longer.
session_options kept(session_options options) {
  options.state = {};
  if (!options.join_group) return options;
  return session::options_as_rank(std::move(options), value_or_throw(session::place_of_this_process()));
}

}  // namespace

result<std::optional<prepared_dataset>> prepare(const config& settings, std::vector<unique_fd> made) {
  if (settings.dataset.type == dataset_type::custom) return std::optional<prepared_dataset>();
  auto prepared = prepare_stream(settings, indexing_logged(), settings.image.decoder, std::move(made));
  if (!prepared) return tl::unexpected(std::move(prepared.error()));
  return std::optional(std::move(*prepared));
}

Session::body::body(config settings, session_options options)
    : run(accepted(std::move(settings), options), kind_of(options)),
      options_(kept(options)),
      group_(group_of(settings_, options)),
      cursor_(settings_.sampler.epochs) {
  if (!options.state.empty()) resumed_ = value_or_throw(schedule::parse_state(options.state));
  board_.is_rank_of(settings_.sampler);
  board_.read_from(options_.config_file);
  if (settings_.loader.start == start_rule::eager) start();
}

Session::body::~body() {
  // After stop() the shutdown may take the time that stop() allowed; otherwise it must be short.
  if (!ending_.stopped()) end_within(host::end_of_dropped);
  close();
}

void Session::body::start() {
  const std::optional<steady_time> begun = begin("run");
  if (!begun) return;
  begun_ = *begun;
  if (auto ok = try_start(); !ok) fail(ok.error());
}

/// One rank of a host lists the dataset; the others get its index.
result<std::optional<prepared_dataset>> Session::body::prepare_with_other_ranks(engine& e) {
  const std::string name =
      group_ ? session::shared_listing_name(settings_, group_->membership, value_or_throw(session::place_of_this_process())) : std::string();
  if (name.empty()) return prepare(settings_);
  e.listing = process::shared_files::find(name, [told = indexing_logged()] { told({0, 0, true}); });
  std::vector<unique_fd> made = e.listing.take();
  if (!made.empty()) log::info("dataset", "using the listing of process {}, a rank on this host", e.listing.maker());
  auto prepared = prepare(settings_, std::move(made));
  if (prepared)
    e.listing.publish((*prepared)->indexes());
  else
    e.listing = {};  // another rank may then list the dataset
  return prepared;
}

result<void> Session::body::try_start() {
  auto e = std::make_unique<engine>();
  const std::uint32_t places = places_of(settings_.loader);
  // One flight recorder per place, and one for the owner's process.
  if (auto ok = e->create_shared(places + 1, worker_cores_.node); !ok) return ok;
  // In a group the other ranks must learn of a failure, so the actors start even after one.
  std::optional<failure> trouble = options_.cannot_begin;
  // Check this before opening the dataset, which may take minutes.
  auto hosts = hosts::read_hosts(settings_.loader, workers_ > 0);
  if (!hosts && !trouble) trouble = std::move(hosts.error());
  if (auto lock = gpu_owner::lock_sink(options_.sink, options_.sink_out); lock) {
    e->sink_lock = std::move(*lock);
  } else if (!trouble) {
    trouble = std::move(lock.error());
  }
  auto dataset = trouble ? result<std::optional<prepared_dataset>>() : prepare_with_other_ranks(*e);
  if (dataset) {
    e->dataset = std::move(*dataset);
  } else {
    trouble = std::move(dataset.error());
  }
  if (!trouble) {
    if (auto ok = describe_for_hosts(*e); !ok) trouble = std::move(ok.error());
  }
  if (trouble && !group_) return tl::unexpected(std::move(*trouble));
  if (e->dataset) {
    for (const std::string& notice : e->dataset->notices) log::warn("dataset", "{}", notice);
  }
  if (!has_keeper()) {
    auto device = device::make_device(settings_.gpu.device);
    if (!device && !group_) return tl::unexpected(std::move(device.error()));
    if (!device) {
      if (!trouble) trouble = std::move(device.error());
      device = device::make_device("host");  // never opened
    }
    e->device = std::move(*device);
  }

  const std::uint32_t begun_with = workers_;
  host::on_a_fresh_thread([&] {
    e->create_threads();
    if (!trouble && *hosts) make_hub(*e, **hosts);
    spawn_actors(*e);
  });
  if (e->hub) {
    if (auto ok = e->hub->open(e->supervisor); !ok && !trouble) trouble = std::move(ok.error());
  }
  open_sockets(*e);
  if (!has_keeper()) {
    home_->open(
        e->device,
        [owner = e->owner, consumer = consumer_](std::uint32_t buffer) {
          if (consumer->give_back(buffer)) actors::tell(owner, gpu_owner::buffers_released{});
        },
        settings_.gpu.buffers);
  }
  if (!trouble) actors::tell(e->owner, gpu_owner::open_device{});
  const std::lock_guard hold(mutex_);
  engine_ = std::move(e);
  pulse_.begins();
  // Pass on the number that scale() has set meanwhile: until now it could not reach the supervisor.
  if (workers_ != begun_with) actors::tell(engine_->supervisor, supervisor::scale_pool{workers_});
  tell_group_of_earlier_failure();
  if (trouble) return tl::unexpected(std::move(*trouble));
  return {};
}

/// From any thread. Fails the run: stops the workers and gives the consumer the reason. Only the first
/// failure counts: it is reported to the group, which may then fail, before the consumer learns of it.
void Session::body::fail(const failure& why) {
  if (!board_.ended(run_outcome::failed, why, now())) return;
  tell(host::event_of(event_kind::run_failed, why.message));
  // First, because the consumer wakes up and stops the session, which would stop the group.
  tell_group_of_failure(why.message);
  consumer_->fail(why);
  cursor_.give_up();
  close_workers(supervision::shares_of(host::end_of_dropped).items);
}

void Session::body::stop(std::optional<std::chrono::milliseconds> at_most, std::string_view by) noexcept {
  ending_.asked_by(by);
  if (board_.stopping()) tell(host::event_of(event_kind::stopping, "the session was asked to stop by " + ending_.who_asked()));
  if (!at_most && ask_group_to_stop()) return;  // the session then ends with its group
  end_within(at_most);
}

/// The common part of stop(), destruction and failure. Records no event.
void Session::body::end_within(std::optional<std::chrono::milliseconds> at_most) noexcept {
  given_up_ = true;
  ending_.stop(at_most);  // before the consumer wakes up and asks for the reason
  consumer_->stop();
  cursor_.give_up();
  const supervision::shutdown_shares shares = ending_.shares();
  close_workers(shares.items);
  const std::lock_guard hold(mutex_);
  if (!engine_) return;
  // An owner that was asked to exit earlier now has less time.
  if (const auto whole = ending_.owner_was_told())
    actors::tell(engine_->owner, gpu_owner::close_device{*whole, false, shares.owner});
}

void Session::body::pause_scheduler(bool paused) {
  actors::tell(engine_->scheduler, scheduler::pause_stream{paused});
}

/// Before the dataset has been described, its slots have no size yet.
result<void> Session::body::check_room(std::uint32_t more_workers) const {
  const auto transfer = cursor_.transfer();
  if (!transfer) return {};
  const auto shape = session::geometry_of(settings_, transfer->slot, places_of(settings_.loader));
  if (!shape) return tl::unexpected(shape.error());
  return arena::check_memory(session::memory_need_of(settings_, *shape, more_workers),
                             arena::memory_limits());
}

bool Session::body::lift_quarantine(std::uint64_t sample, bool for_good) {
  // A sample that retry has lifted for this run stays in the file until it is released.
  using host::quarantine_standing;
  const quarantine_standing was = board_.lift_quarantine(sample, for_good);
  if (was == quarantine_standing::none || (was == quarantine_standing::lifted && !for_good)) return false;
  const std::lock_guard hold(mutex_);
  if (!engine_) return true;
  if (was == quarantine_standing::in_force)
    actors::tell(engine_->scheduler, scheduler::lift_quarantine{sample});
  if (for_good) actors::tell(engine_->session, session::quarantine_released{sample});
  return true;
}

/// Waits until the workers are gone or their share of the time has passed.
void Session::body::wait_for_pool() {
  if (close_workers(ending_.shares().items)) ending_.wait_for_pool();
}

/// Waits until the owner's process has let its sink finish and is gone, or its share of the time has passed.
/// Returns whether it is gone.
bool Session::body::wait_for_owner(bool whole) {
  {
    const std::lock_guard hold(mutex_);
    if (!engine_ || !engine_->keeper) return true;
    ending_.owner_told(whole, now());
    actors::tell(engine_->owner, gpu_owner::close_device{whole, false, ending_.shares().owner});
  }
  return ending_.wait_for_owner();
}

void Session::body::close() noexcept {
  ending_.close();
  leave_group();
  const bool cut_short = board_.ended_if_running(run_outcome::stopped, now(), ending_.why_failed());
  wait_for_pool();
  sink_.reset();
  home_->close();
  engine* e = nullptr;
  {
    const std::lock_guard hold(mutex_);
    e = engine_.get();
    // Later callers get this answer: the scheduler is about to end.
    if (e != nullptr) final_accounts_ = ask_for_accounts(*e, true);
    pulse_.ends();
  }
  static_cast<void>(accounts(true));  // delivery events must precede the event of the end
  if (cut_short) tell_ended(run_outcome::stopped);
  if (e == nullptr) return stop_readers();  // the session never ran, or is already closed
  ending_.wait_for_group();
  drop_group(*e);
  // Shut down from the outside in: the sockets, the workers, the owner, the actors.
  close_sockets(*e);
  if (e->hub) e->hub->shut_down();
  e->processes->shut_down();
  static_cast<void>(wait_for_owner(false));
  if (e->owner_process) e->owner_process->shut_down();
  if (e->owner_inside) e->owner_inside->shut_down(ending_.shares().owner);
  actors::tell(e->owner, gpu_owner::close_device{});
  actors::tell(e->scheduler, scheduler::stop_scheduling{});
  actors::tell(e->session, session::leave{});
  actors::stop(e->supervisor);
  // Actors hold each other's handles, so all of them must have ended before we drop ours.
  e->system->await_all_actors_done();
  stop_readers();
  std::unique_ptr<engine> gone;  // freeing its memory takes time; other threads may query meanwhile
  {
    const std::lock_guard hold(mutex_);
    gone = std::move(engine_);
  }
  host::on_a_fresh_thread([&] { gone.reset(); });
}

void Session::body::tell_ended(run_outcome how) {
  if (how == run_outcome::finished)
    return tell(host::event_of(event_kind::run_finished, "everything requested has been delivered"));
  const bool at_limit = options_.batches && board_.status().batches_delivered >= *options_.batches;
  const std::string who = ending_.who_asked();
  if (const std::string failed = ending_.why_failed(); !failed.empty()) return tell(host::event_of(event_kind::run_failed, failed));
  tell(host::event_of(event_kind::run_stopped,
                      at_limit      ? counted(*options_.batches, "batch was", "batches were") + " delivered, as requested"
                      : who.empty() ? "the program closed it before its end"
                                    : "it was stopped by " + who));
}

}  // namespace penstock
