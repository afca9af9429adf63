#include "actors/supervisor/owner_process.hpp"

#include "actors/caf/caf.hpp"
#include "runtime/process/crash_notes.hpp"
#include "runtime/process/inherited_environment.hpp"

#include <boost/asio/post.hpp>
#include <unistd.h>

#include <csignal>
#include <future>

namespace penstock::supervisor {
namespace {

const std::string output_source = "gpu";

}  // namespace

void owner_process::start(std::uint32_t incarnation) {
  boost::asio::post(io_.context(),
                    [self = shared_from_this(), incarnation] { self->start_now(incarnation); });
}

void owner_process::start_now(std::uint32_t incarnation) {
  if (shut_down_) return;
  starting_ = starting{incarnation, {}, {}};
  process::child_callbacks process_calls;
  process_calls.output = [this, incarnation](std::string_view line) {
    listeners_.output->wrote(output_source, incarnation, line);
  };
  process_calls.exited = [this, incarnation](const process::exit_report& report,
                                             const process::output_tail& tail) {
    on_end(incarnation, report, tail);
  };
  auto control = start_linked_child(io_,
                                    {.who = "the GPU owner",
                                     .program = "penstock-gpu",
                                     .arguments = {},
                                     .environment = process::inherited_environment(),
                                     .lifeline = fds_.lifeline,
                                     .arena = fds_.arena,
                                     .flight = fds_.flight,
                                     .cores = fds_.cores},
                                    std::move(process_calls),
                                    [self = shared_from_this(), incarnation](result<linked_child> child) {
                                      self->started(incarnation, std::move(child));
                                    });
  if (starting_) starting_->control = std::move(control);  // the start may already have failed
}

void owner_process::started(std::uint32_t incarnation, result<linked_child> child) {
  if (shut_down_) return;  // the child is shut down as well
  std::vector<int> signals;
  if (starting_ && starting_->incarnation == incarnation) {
    signals = std::move(starting_->signals);
    starting_.reset();
  }
  if (!child) return actors::tell(listeners_.keeper, owner_refused{incarnation, child.error()});

  protocol::owner_link::callbacks link_calls;
  link_calls.received = [this, incarnation](protocol::from_owner&& message) {
    actors::tell(listeners_.keeper, owner_spoke{incarnation, std::move(message)});
  };
  link_calls.closed = [this, incarnation](const std::string& reason) {
    actors::tell(listeners_.keeper, owner_lost_link{incarnation, reason});
  };
  link_calls.unasked_max = owner_messages_unasked;
  auto link = protocol::owner_link::make(io_.context(), std::move(child->link), std::move(link_calls));
  running_.emplace(running{incarnation, std::move(child->process), link});
  listeners_.output->started(output_source, incarnation);
  actors::tell(listeners_.keeper, owner_started{incarnation, running_->process->pid(), link});
  link->start();
  for (const int number : signals) running_->process->signal(number);
}

void owner_process::on_end(std::uint32_t incarnation, const process::exit_report& report,
                           const process::output_tail& tail) {
  if (!running_ || running_->incarnation != incarnation) return;
  // Acknowledgements that the process sent before it died still count.
  running_->link->drain();
  running_->link->close();
  listeners_.output->ended(output_source);
  actors::tell(listeners_.keeper, owner_exited{incarnation, report,
                                               process::last_lines_without_stack(
                                                   tail.text(), process::output_tail::lines_shown)});
  running_.reset();
}

void owner_process::signal(std::uint32_t incarnation, int number) {
  boost::asio::post(io_.context(), [self = shared_from_this(), incarnation, number] {
    if (self->running_ && self->running_->incarnation == incarnation)
      return self->running_->process->signal(number);
    if (!self->starting_ || self->starting_->incarnation != incarnation) return;
    self->starting_->signals.push_back(number);  // it may have started in the meantime
    if (number == SIGKILL && self->starting_->control) self->starting_->control->give_up();
  });
}

void owner_process::shut_down() {
  std::promise<void> done;
  boost::asio::post(io_.context(), [&] {
    shut_down_ = true;
    if (running_) running_->link->close();
    running_.reset();  // kills and reaps
    listeners_ = {};
    done.set_value();
  });
  done.get_future().wait();
}

}  // namespace penstock::supervisor
