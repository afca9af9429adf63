#include "actors/remote/hosted_worker.hpp"

#include "actors/protocol/config_bytes.hpp"
#include "actors/remote/agreement.hpp"
#include "actors/supervisor/worker_processes.hpp"
#include "runtime/base/exit_codes.hpp"
#include "runtime/base/text.hpp"
#include "runtime/process/process_facts.hpp"

#include <boost/asio/post.hpp>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

namespace penstock::hosts {
namespace {

using namespace std::chrono_literals;

constexpr auto flight_interval = 50ms;        // while the worker has leases
constexpr auto idle_flight_interval = 250ms;  // remote_connection stands in for the worker after twice this time

}  // namespace

struct hosted_worker::shared_part {
  // Used on the io thread:
  std::unique_ptr<process::child_process> process;
  std::shared_ptr<process::start_control> control;
  std::vector<int> signals;  // received before the process has started
  bool unwanted = false;

  std::mutex mutex;  // guards the rest: what the io thread reports
  std::optional<result<pid_t>> started;
  unique_fd link;
  unique_fd parcels;
  std::vector<std::string> lines;
  std::optional<place_ended> ended;

  void tell(const wake_event& wake, const std::function<void()>& change) {
    {
      const std::lock_guard hold(mutex);
      change();
    }
    wake.raise();
  }
  /// In a pool: the host's own program, forked by a template if there is one.
  static void run_jobs(const std::shared_ptr<shared_part>& part, supervisor::linked_child_request& request,
                       const hosted_worker_deps& deps) {
    host_program& program = *deps.dataset->program;
    request.program = program.own().command.front();
    request.arguments = {program.own().command.begin() + 1, program.own().command.end()};
    request.environment = program.environment(deps.number);
    request.parcels = true;
    if (host_template* const forker = program.forker()) {
      request.start_with = [part, forker, number = deps.number, wake = deps.wake](process::spawn_request spawn,
                                                                                      process::spawner::done then) {
        return forker->start(number, std::move(spawn), std::move(then),
                             [part, wake](pid_t pid, const process::exit_report& report, const process::output_tail& tail) {
                               part->tell(*wake, [&] {
                                 part->started = pid;
                                 part->ended = place_ended{pid, static_cast<std::uint8_t>(report.ending), report.code, tail.text()};
                               });
                             });
      };
    }
  }
  void signal(int number) {
    if (process) return process->signal(number);
    signals.push_back(number);
    if (number == SIGKILL && control) control->give_up();
  }
};

hosted_worker::hosted_worker(const hosted_worker_deps& deps, arena::arena memory, arena::flight_recorders flights)
    : deps_(deps),
      memory_(std::move(memory)),
      flights_(std::move(flights)),
      shared_(std::make_shared<shared_part>()) {
  if (deps_.dataset->program) jobs_ = std::make_unique<hosted_jobs>(deps_.dataset->program, deps_.dataset->lost_after);
}

result<std::unique_ptr<hosted_worker>> hosted_worker::start(const hosted_worker_deps& deps) {
  auto memory = arena::arena::create();
  if (!memory) return tl::unexpected(std::move(memory.error()));
  auto flights = arena::flight_recorders::create(1);
  if (!flights) return tl::unexpected(std::move(flights.error()));
  auto packs = packer::open(deps.dataset->compress);
  if (!packs) return tl::unexpected(std::move(packs.error()));
  auto made = std::unique_ptr<hosted_worker>(new hosted_worker(deps, std::move(*memory), std::move(*flights)));
  made->packer_ = std::move(*packs);
  const auto& file = deps.dataset->file;
  if (auto ok = file ? check_unchanged(*file) : result<void>(); !ok)
    made->shared_->started = tl::unexpected(std::move(ok.error()));  // reported by the first work()
  else
    made->launch();
  return made;
}

void hosted_worker::launch() {
  // The descriptors must live until the io thread has used them.
  const auto arena_fd = std::make_shared<unique_fd>(::dup(memory_.fd()));
  const auto flight_fd = std::make_shared<unique_fd>(::dup(flights_.fd()));
  boost::asio::post(deps_.io->context(), [part = shared_, deps = deps_, arena_fd, flight_fd] {
    if (part->unwanted) return;
    process::child_callbacks calls;
    calls.output = [part = part.get(), wake = deps.wake](std::string_view line) {
      part->tell(*wake, [&] { part->lines.emplace_back(line); });
    };
    calls.exited = [part = part.get(), wake = deps.wake](const process::exit_report& report, const process::output_tail& tail) {
      part->tell(*wake, [&] {
        part->ended = place_ended{report.pid, static_cast<std::uint8_t>(report.ending), report.code, tail.text()};
      });
    };
    supervisor::linked_child_request request{.who = "a worker",
                                             .program = "penstock-worker",
                                             .arguments = {},
                                             .environment = supervisor::worker_environment({{"PENSTOCK_ON_HOST", "1"}}),
                                             .lifeline = deps.lifeline,
                                             .arena = arena_fd->get(),
                                             .flight = flight_fd->get(),
                                             .indexes = {}};
    const std::vector<std::string>& command = deps.dataset->command;
    if (!command.empty()) {
      request.program = command.front();
      request.arguments = {command.begin() + 1, command.end()};
    }
    if (deps.dataset->program)
      shared_part::run_jobs(part, request, deps);
    else
      request.indexes = deps.dataset->dataset->descriptors();
    auto control = supervisor::start_linked_child(
        *deps.io, std::move(request), std::move(calls), [part, wake = deps.wake](result<supervisor::linked_child> child) {
          if (!child) {
            return part->tell(*wake, [&] { part->started = tl::unexpected(child.error()); });
          }
          if (part->unwanted) return;  // destroying `child` kills the process
          part->process = std::move(child->process);
          for (const int number : part->signals) part->process->signal(number);
          part->tell(*wake, [&] {
            part->started = part->process->pid();
            part->link = std::move(child->link);
            part->parcels = std::move(child->parcels);
          });
        });
    if (control) part->control = std::move(control);
  });
}

hosted_worker::~hosted_worker() {
  boost::asio::post(deps_.io->context(), [part = shared_] {
    part->unwanted = true;
    if (part->control) part->control->give_up();
    part->process.reset();
  });
}

void hosted_worker::signal(int number) {
  boost::asio::post(deps_.io->context(), [part = shared_, number] { part->signal(number); });
}

// ---- from the worker ----------------------------------------------------------------------------------------

result<void> hosted_worker::work(host_stream& to) {
  send_to_worker();
  if (auto ok = hear_link(to); !ok) return ok;
  show_flight(to, false);
  if (jobs_ && link_) {
    if (auto ok = jobs_->answer(to); !ok) return ok;
  }
  return hear_io(to);
}

result<void> hosted_worker::hear_io(host_stream& to) {
  std::optional<result<pid_t>> started;
  std::vector<std::string> lines;
  std::optional<place_ended> ended;
  {
    const std::lock_guard hold(shared_->mutex);
    started = std::exchange(shared_->started, std::nullopt);
    if (shared_->link) link_ = std::move(shared_->link);
    if (shared_->parcels && jobs_) jobs_->started(std::move(shared_->parcels));
    lines.swap(shared_->lines);
    ended = std::exchange(shared_->ended, std::nullopt);
  }
  if (started && !*started) {
    over_ = true;
    if (started->error().code == errc::worker_program) return say_unfit(to, started->error().message);
    to.put(from_host(place_not_started{started->error().message}));
    return {};
  }
  if (started) {
    meter_.started(**started);
    to.put(from_host(place_started{meter_.pid()}));
  }
  for (std::string& line : lines) to.put(from_host(output_line{std::move(line)}));
  if (!ended) return {};
  // Messages that the worker sent before it died still count. With them handled, its last flight mark shows the
  // work that it died of.
  if (auto ok = hear_link(to); !ok) return ok;
  link_.reset();
  show_flight(to, true);
  over_ = true;
  const bool exited = static_cast<process::exit_report::how>(ended->how) == process::exit_report::how::exited;
  if (exited && exit_codes::is_permanent(ended->code))
    return say_unfit(to, fmt::format("a worker ended with exit {}: {}", ended->code,
                                     gave_up_.empty() ? printable(shortened(ended->last_output, 500)) : gave_up_));
  to.put(from_host(std::move(*ended)));
  return {};
}

result<void> hosted_worker::say_unfit(host_stream& to, const std::string& why) const {
  to.put(from_host(cannot_join{why}));
  static_cast<void>(to.flush(1s));
  return refuse(errc::config, "{}", why);
}

result<void> hosted_worker::hear_link(host_stream& to) {
  std::array<char, 16 * 1024> some;  // NOLINT(cppcoreguidelines-pro-type-member-init): written by recv
  while (link_) {
    const ssize_t got = ::recv(link_.get(), some.data(), some.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return {};
    if (got <= 0) {
      link_.reset();
      return {};
    }
    result<void> done;
    const auto ok = from_worker_.feed({some.data(), static_cast<std::size_t>(got)}, [&](protocol::from_worker&& message) {
      if (done) done = take(to, message);
    });
    if (!done) return done;
    // Pass invalid bytes on: the session decides what to do with a worker that violates the protocol.
    if (!ok) to.put(from_host(from_place{{some.data(), static_cast<std::size_t>(got)}}));
  }
  return {};
}

result<void> hosted_worker::take(host_stream& to, protocol::from_worker& message) {
  std::vector<char> frame;
  static_cast<void>(protocol::append_frame(frame, message));
  std::string bytes(frame.begin(), frame.end());
  if (std::holds_alternative<protocol::worker_ready>(message) && !leases_) leases_ = 0;
  if (const auto* last = std::get_if<protocol::worker_gives_up>(&message)) gave_up_ = last->reason;
  if (const auto* done = std::get_if<protocol::jobs_done>(&message); done != nullptr && jobs_)
    return jobs_->ended(to, *done, deps_.digests);
  if (const auto* said = std::get_if<protocol::dataset_described>(&message); said != nullptr && !deps_.dataset->command.empty()) {
    // The data may have changed since the first worker described it. Do not pass that on: the session would fail, instead of
    // losing this host.
    const std::string why = difference_of_datasets(deps_.dataset->dataset->description, *said);
    if (!why.empty()) return say_unfit(to, why);
  }
  const auto* batch = std::get_if<protocol::batch_loaded>(&message);
  if (batch == nullptr || !slots_ || batch->slot >= slots_->slots() || batch->rows > layout_.rows_max) {
    to.put(from_host(from_place{std::move(bytes)}));
    return {};
  }
  if (leases_.value_or(0) > 0) --*leases_;
  loaded& kept = loaded_[batch->slot];
  kept = {batch->generation, batch->rows, std::move(bytes)};
  return send_batch(to, batch->slot, kept);
}

result<void> hosted_worker::send_batch(host_stream& to, std::uint32_t slot, const loaded& what) const {
  const std::span<const std::byte> bytes = slots_->slot(slot).first(layout_.used_bytes(what.rows));
  const nanoseconds silence_max = deps_.dataset->lost_after;
  to.put(from_host(batch_follows{slot, what.generation, what.rows, bytes.size(), what.report, packer_ != nullptr}));
  return packer_ ? send_packed(to, *packer_, bytes, silence_max, deps_.digests) : to.flush(silence_max, bytes, deps_.digests);
}

result<void> hosted_worker::send_again(host_stream& to, const hosts::send_again& order) {
  if (jobs_) return jobs_->send_again(to);
  const auto kept = loaded_.find(order.slot);
  if (kept == loaded_.end() || kept->second.generation != order.generation) return {};
  return send_batch(to, order.slot, kept->second);
}

void hosted_worker::show_flight(host_stream& to, bool at_any_rate) {
  if (meter_.pid() <= 0) return;
  const steady_time time = now();
  if (!at_any_rate && time - shown_at_ < (is_busy() ? flight_interval : idle_flight_interval)) return;
  shown_at_ = time;
  meter_.look(time);
  const arena::flight_reading seen = flights_.read(0);
  flight_seen news{seen.word, seen.heartbeats, seen.samples_done, meter_.private_bytes(), meter_.resident_bytes(), seen.sample_name, 0, -1};
  if (seen.state.at != arena::phase::idle) news.since_ns = nanoseconds(time - seen.since).count();
  if (seen.reads_since) news.reads_since_ns = std::max<std::int64_t>(nanoseconds(time - *seen.reads_since).count(), 0);
  if (jobs_) news.mark = jobs_->mark();
  if (const auto times = process::times_of(meter_.pid(), seen.thread)) {
    news.cpu_ns = times->cpu.count();
    news.core_wait_ns = times->core_wait.count();
  }
  news.traced = meter_.traced() && !at_any_rate;
  if (seen.sample) {
    news.sample = seen.sample->index;
    news.attempt = seen.sample->attempt;
  }
  to.put(from_host(std::move(news)));
}

}  // namespace penstock::hosts
