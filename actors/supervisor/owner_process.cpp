#include "actors/supervisor/owner_process.hpp"

#include <boost/asio/post.hpp>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <future>

extern char** environ;  // NOLINT: POSIX declares it nowhere

namespace penstock::supervisor {
namespace {

std::vector<std::string> own_environment() {
  std::vector<std::string> list;
  for (char** entry = environ; *entry != nullptr; ++entry) list.emplace_back(*entry);
  return list;
}

}  // namespace

void owner_process::start(std::uint32_t incarnation) {
  boost::asio::post(io_.context(), [self = shared_from_this(), incarnation] {
    if (self->shut_down_) return;
    if (auto ok = self->try_start(incarnation); !ok) self->callbacks_.start_failed(incarnation, ok.error());
  });
}

result<void> owner_process::try_start(std::uint32_t incarnation) {
  auto program = process::find_program("penstock-gpu");
  if (!program) return tl::unexpected(std::move(program.error()));
  auto ends = protocol::make_link_pair();
  if (!ends) return tl::unexpected(std::move(ends.error()));
  std::array<int, 2> output{};
  if (::pipe2(output.data(), O_CLOEXEC) != 0)
    return refuse_os(errc::system, errno, "creating the GPU owner's output pipe");
  unique_fd output_read(output[0]);
  const unique_fd output_write(output[1]);

  const process::spawn_request request{*program,
                                       {},
                                       own_environment(),
                                       {{output_write.get(), STDOUT_FILENO},
                                        {output_write.get(), STDERR_FILENO},
                                        {ends->second.get(), protocol::child_fd::link},
                                        {fds_.lifeline, protocol::child_fd::lifeline},
                                        {fds_.arena, protocol::child_fd::arena},
                                        {fds_.flight, protocol::child_fd::flight}}};
  process::child_callbacks process_calls;
  process_calls.output = [this, incarnation](std::string_view line) { callbacks_.wrote(incarnation, line); };
  process_calls.exited = [this, incarnation](const process::exit_report& report,
                                             const process::output_tail& tail) {
    on_end(incarnation, report, tail);
  };
  auto child =
      process::child_process::start(io_.context(), request, std::move(output_read), std::move(process_calls));
  if (!child) return tl::unexpected(std::move(child.error()));

  protocol::owner_link::callbacks link_calls;
  link_calls.received = [this, incarnation](protocol::from_owner&& message) {
    callbacks_.spoke(incarnation, std::move(message));
  };
  link_calls.closed = [this, incarnation](const std::string& reason) {
    callbacks_.link_closed(incarnation, reason);
  };
  auto link = protocol::owner_link::make(io_.context(), std::move(ends->first), std::move(link_calls));
  running_.emplace(running{incarnation, std::move(*child), link});
  callbacks_.started(incarnation, running_->process->pid(), link);
  link->start();
  return {};
}

void owner_process::on_end(std::uint32_t incarnation, const process::exit_report& report,
                           const process::output_tail& tail) {
  if (!running_ || running_->incarnation != incarnation) return;
  // What it acknowledged before it died counts.
  running_->link->drain();
  running_->link->close();
  callbacks_.ended(incarnation, report, tail);
  running_.reset();
}

void owner_process::signal(std::uint32_t incarnation, int number) {
  boost::asio::post(io_.context(), [self = shared_from_this(), incarnation, number] {
    if (self->running_ && self->running_->incarnation == incarnation) self->running_->process->signal(number);
  });
}

void owner_process::shut_down() {
  std::promise<void> done;
  boost::asio::post(io_.context(), [&] {
    shut_down_ = true;
    if (running_) running_->link->close();
    running_.reset();  // kills and reaps
    done.set_value();
  });
  done.get_future().wait();
}

}  // namespace penstock::supervisor
