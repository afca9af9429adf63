#include "actors/child/child.hpp"
#include "actors/job_worker/by_hand.hpp"
#include "actors/child/high_descriptor.hpp"
#include "actors/job_worker/job_runner.hpp"
#include "actors/job_worker/session_channel.hpp"
#include "runtime/base/exit_codes.hpp"
#include "runtime/base/text.hpp"
#include "runtime/process/crash_notes.hpp"
#include "runtime/process/fault_injection.hpp"

#include <penstock/job.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <deque>
#include <optional>

namespace penstock {
namespace job_worker {
namespace {

using protocol::functions_described;

job_runner* runner_of_this_process = nullptr;  // used by session_file()

/// Why a pool cannot use these functions; empty if it can.
std::string mistake_in(const std::map<std::string, job_function>& functions) {
  if (functions.empty())
    return "the worker program has no functions: pass them as in job_main({{\"name\", function}})";
  if (functions.size() > functions_described::functions_max) {
    return fmt::format("the worker program has {} functions, but at most {} are allowed", functions.size(),
                       functions_described::functions_max);
  }
  for (const auto& [name, run] : functions) {
    if (name.empty()) return "a function of the worker program has an empty name";
    if (name.size() > functions_described::name_bytes_max) {
      return fmt::format("the name of a function has {} bytes, but at most {} are allowed: {}", name.size(),
                         functions_described::name_bytes_max, shortened(printable(name), 80));
    }
    if (!run) return fmt::format("the function '{}' of the worker program is empty", printable(name));
  }
  return {};
}

/// The worker process after startup: handles one message after another, all on the main thread.
///
///            open_dataset             assign_slots
///   opening -------------> described -------------> ready --- run_jobs ---> (works, then ready again)
///      any of them: worker_gives_up, exit 77 / 78 / 82;  the link is lost: exit 83;  stop_work: exit 0
class worker {
 public:
  worker(const std::vector<named_function>& functions, child::heartbeat& pulse)
      : functions_(functions),
        pulse_(pulse),
        channel_(protocol::child_fd::link),
        parcels_(child::high_duplicate(protocol::child_fd::parcels)),
        arena_(child::high_duplicate(protocol::child_fd::arena)) {
    say(protocol::hello{protocol::hello::expected_magic, protocol::version, ::getpid()});
  }

  /// Runs until the process should exit; returns the exit code.
  int work() {
    while (!end_) {
      // Also poll before each lease, because stop_work overtakes waiting leases.
      listen(leases_.empty() ? session_channel::wait::for_one : session_channel::wait::no);
      if (end_ || leases_.empty()) continue;
      const protocol::run_jobs lease = leases_.front();
      leases_.pop_front();
      run(lease);
    }
    return *end_;
  }

  void give_up(int exit_code, const failure& why) {
    if (end_) return;
    say(protocol::worker_gives_up{exit_code, static_cast<std::uint8_t>(why.code), why.message});
    end(exit_code);
  }

 private:
  void end(int exit_code) {
    if (!end_) end_ = exit_code;
  }

  void say(const protocol::from_worker& message) {
    if (!channel_.send(message)) end(exit_codes::parent_lost);
  }

  void listen(session_channel::wait how) {
    using news = session_channel::news;
    const auto hear = [this](protocol::to_worker&& message) {
      std::visit([this](const auto& m) { take(m); }, message);
    };
    const news found = channel_.receive(how, hear);
    if (found == news::closed) end(exit_codes::parent_lost);
    if (found == news::nonsense) give_up(exit_codes::protocol, {errc::protocol, channel_.what(), 0});
  }

  void take(const protocol::open_dataset& order) {
    if (end_) return;
    if (order.version != protocol::version) {
      return give_up(exit_codes::protocol,
                     {errc::protocol,
                      fmt::format("the session speaks protocol {}, but this worker speaks {}", order.version,
                                  protocol::version),
                      0});
    }
    if (flight_) return give_up(exit_codes::protocol, {errc::protocol, "it received its identity twice", 0});
    me_ = order.you;
    pulse_.adopt(me_.worker);
    process::this_thread_works();
    auto flight = arena::flight_writer::map(protocol::child_fd::flight, me_.worker);
    if (!flight) return give_up(exit_codes::protocol, flight.error());
    flight_.emplace(std::move(*flight));
    flight_->this_thread_works(process::working_thread());
    flight_->publish({arena::phase::setup, 0, 0, 0}, "");
    functions_described said;
    for (const named_function& f : functions_) said.names.push_back(f.name);
    say(said);
  }

  void take(const protocol::assign_slots& order) {
    if (end_) return;
    if (!flight_ || slots_)
      return give_up(exit_codes::protocol, {errc::protocol, "slots were assigned at the wrong time", 0});
    const arena::geometry shape{order.slot_bytes, order.slots, order.partitions};
    auto slots = arena::slots_view::map(arena_.get(), shape, order.partition);
    if (!slots) return give_up(exit_codes::protocol, slots.error());
    slots_.emplace(std::move(*slots));
    own_ = private_slots(*slots_, arena_.get(), shape, order.partition);
    settings_.emplace();
    runner_.emplace(job_context{functions_, *slots_, *flight_, *settings_, me_, parcels_.get(),
                                order.elsewhere_max, [this](const protocol::jobs_done& rows) { say(rows); },
                                [this] {
                                  listen(session_channel::wait::no);
                                  return end_.has_value();
                                }});
    runner_of_this_process = &*runner_;
    if (!runner_->why().empty()) {
      return give_up(
          exit_codes::configuration,
          {errc::worker_program,
           fmt::format("the worker program loaded CUDA into worker {} (pid {}); only the GPU owner uses the "
                       "GPU",
                       me_.worker, ::getpid()),
           0});
    }
    flight_->rest();
    say(protocol::worker_ready{});
  }

  void take(const protocol::run_jobs& lease) {
    if (!runner_)
      return give_up(exit_codes::protocol, {errc::protocol, "it received a lease before the slots", 0});
    if (leases_.size() >= slots_->slots())
      return give_up(exit_codes::protocol,
                     {errc::protocol, "it received more leases than there are slots", 0});
    leases_.push_back(lease);
  }

  void take(const protocol::load_batch&) {
    give_up(exit_codes::protocol, {errc::protocol, "the session asked a pool's worker for a batch", 0});
  }

  void take(const protocol::drop_batch&) { take(protocol::load_batch{}); }
  void take(const protocol::name_samples&) { take(protocol::load_batch{}); }

  void take(const protocol::stop_work&) { end(exit_codes::finished); }

  void run(const protocol::run_jobs& lease) {
    const auto ran = runner_->run(lease);
    if (!ran && ran.error().code == errc::protocol) return give_up(exit_codes::protocol, ran.error());
    if (!ran) {
      // Exit: a new process can continue, but this one cannot.
      fmt::print(stderr, "penstock: worker {} ends: {}\n", me_.worker, printable(ran.error().message));
      return end(exit_codes::failed);
    }
    if (*ran != job_runner::outcome::unfit) return;
    fmt::print(stderr, "penstock: worker {} is replaced: {}\n", me_.worker, printable(runner_->why()));
    end(exit_codes::temporary);
  }

  const std::vector<named_function>& functions_;
  child::heartbeat& pulse_;
  session_channel channel_;
  unique_fd parcels_;
  unique_fd arena_;
  worker_ref me_;
  std::optional<arena::flight_writer> flight_;
  std::optional<arena::slots_view> slots_;
  std::vector<private_in_children> own_;  // the slots
  std::optional<process_settings> settings_;
  std::optional<job_runner> runner_;
  std::deque<protocol::run_jobs> leases_;  // at most one per slot
  std::optional<int> end_;                 // the exit code
};

}  // namespace
}  // namespace job_worker

int session_file(std::uint64_t number) {
  if (job_worker::runner_of_this_process == nullptr) throw error({errc::usage, "this process runs no jobs", 0});
  return value_or_throw(job_worker::runner_of_this_process->shared_file(static_cast<std::uint32_t>(number))).release();
}

int job_main(const std::map<std::string, job_function>& functions) {
  const std::string mistake = job_worker::mistake_in(functions);
  std::vector<job_worker::named_function> named;
  for (const auto& [name, run] : functions) named.push_back({name, run});
  if (!child::has_session()) {
    if (mistake.empty()) return job_worker::run_by_hand(named);
    fmt::print(stderr, "{}\n", mistake);
    return exit_codes::configuration;
  }
  if (!child::started_by_a_session("a penstock job worker")) return exit_codes::configuration;
  child::prefer_as_oom_victim();
  child::leave_sigterm_to_the_host();
  process::write_stack_when_dying();
  process::accept_injected_faults();
  child::heartbeat pulse;
  job_worker::worker here(named, pulse);
  if (!mistake.empty()) here.give_up(exit_codes::configuration, {errc::worker_program, mistake, 0});
  child::leave(here.work(),
               // send() returns only once the kernel has the message
               [](const std::function<void()>& then) { then(); });
}

}  // namespace penstock
