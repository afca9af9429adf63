#include "actors/supervisor/worker_processes.hpp"

#include <boost/asio/post.hpp>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <future>

extern char** environ;  // NOLINT: POSIX declares it nowhere

namespace penstock::supervisor {
namespace {

// A worker says hello unasked, and goodbye.
constexpr std::uint64_t unasked_messages_max = 8;

}  // namespace

std::vector<std::string> worker_environment(const std::map<std::string, std::string>& extra) {
  std::map<std::string, std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text(*entry);
    if (const auto equals = text.find('='); equals != std::string::npos)
      merged[text.substr(0, equals)] = text.substr(equals + 1);
  }
  for (const auto& [name, value] : extra) merged[name] = value;
  // Only the GPU owner uses the GPU. Hidden, a stray CUDA call in a worker fails at once instead of creating
  // a context.
  merged["CUDA_VISIBLE_DEVICES"] = "";
  std::vector<std::string> list;
  list.reserve(merged.size());
  for (const auto& [name, value] : merged) list.push_back(name + "=" + value);
  return list;
}

worker_processes::worker_processes(process::io_thread& io, worker_program program, worker_callbacks callbacks)
    : io_(io), program_(std::move(program)), callbacks_(std::move(callbacks)) {}

void worker_processes::start(worker_ref who) {
  boost::asio::post(io_.context(), [self = shared_from_this(), who] { self->start_now(who); });
}

void worker_processes::start_now(worker_ref who) {
  if (shut_down_) return;
  if (auto ok = try_start(who); !ok) callbacks_.start_failed(who, ok.error());
}

result<void> worker_processes::try_start(worker_ref who) {
  auto program = process::find_program(program_.command.front());
  if (!program) return tl::unexpected(std::move(program.error()));
  auto ends = protocol::make_link_pair();
  if (!ends) return tl::unexpected(std::move(ends.error()));
  std::array<int, 2> output{};
  if (::pipe2(output.data(), O_CLOEXEC) != 0)
    return refuse_os(errc::system, errno, "creating a worker's output pipe");
  unique_fd output_read(output[0]);
  const unique_fd output_write(output[1]);

  process::spawn_request request{*program,
                                 {program_.command.begin() + 1, program_.command.end()},
                                 program_.environment,
                                 {{output_write.get(), STDOUT_FILENO},
                                  {output_write.get(), STDERR_FILENO},
                                  {ends->second.get(), protocol::child_fd::link},
                                  {program_.lifeline, protocol::child_fd::lifeline},
                                  {program_.arena, protocol::child_fd::arena},
                                  {program_.flight, protocol::child_fd::flight}}};
  if (program_.index >= 0) request.fds.push_back({program_.index, protocol::child_fd::index});

  process::child_callbacks process_calls;
  process_calls.output = [this, who](std::string_view line) { callbacks_.wrote(who, line); };
  process_calls.exited = [this, who](const process::exit_report& report, const process::output_tail& tail) {
    on_end(who, report, tail);
  };
  auto child = process::child_process::start(io_.context(), std::move(request), std::move(output_read),
                                             std::move(process_calls));
  if (!child) return tl::unexpected(std::move(child.error()));

  protocol::worker_link::callbacks link_calls;
  link_calls.received = [this, who](protocol::from_worker&& message) {
    callbacks_.spoke(who, std::move(message));
  };
  link_calls.closed = [this, who](const std::string& reason) { callbacks_.link_closed(who, reason); };
  link_calls.unasked_max = unasked_messages_max;
  auto link = protocol::worker_link::make(io_.context(), std::move(ends->first), std::move(link_calls));

  running& entry = running_[who.worker];
  entry = {who, std::move(*child), link};
  callbacks_.started(who, entry.process->pid(), link);
  link->start();
  return {};
}

void worker_processes::on_end(worker_ref who, const process::exit_report& report,
                              const process::output_tail& tail) {
  const auto it = running_.find(who.worker);
  if (it == running_.end() || it->second.who != who) return;
  // What it said before it died counts; a grandchild may hold the socket, so nobody waits for its end.
  it->second.link->drain();
  it->second.link->close();
  callbacks_.ended(who, report, tail);
  running_.erase(who.worker);
}

void worker_processes::signal(worker_ref who, int number) {
  boost::asio::post(io_.context(), [self = shared_from_this(), who, number] {
    const auto it = self->running_.find(who.worker);
    if (it != self->running_.end() && it->second.who == who) it->second.process->signal(number);
  });
}

void worker_processes::shut_down() {
  std::promise<void> done;
  boost::asio::post(io_.context(), [&] {
    shut_down_ = true;
    for (auto& [index, entry] : running_) entry.link->close();
    running_.clear();  // kills and reaps
    done.set_value();
  });
  done.get_future().wait();
}

}  // namespace penstock::supervisor
