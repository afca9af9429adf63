#include "actors/supervisor/worker_processes.hpp"

#include "actors/caf/caf.hpp"
#include "runtime/process/crash_notes.hpp"
#include "runtime/process/inherited_environment.hpp"

#include <boost/asio/post.hpp>
#include <unistd.h>

#include <csignal>
#include <future>

namespace penstock::supervisor {
namespace {

// Tells a worker its number through the environment, before the link does.
constexpr auto worker_variable = "PENSTOCK_WORKER";

// 2 for hello and worker_gives_up; the other 6 for messages in transit when it must stop.
constexpr std::uint64_t unasked_messages_max = 8;

const std::string template_source = "template";

std::string source_of(worker_ref who) {
  return fmt::format("worker/{}", who.worker);
}

}  // namespace

std::vector<std::string> worker_environment(const std::map<std::string, std::string>& extra) {
  std::map<std::string, std::string> merged;
  for (const std::string& text : process::inherited_environment()) {
    if (const auto equals = text.find('='); equals != std::string::npos)
      merged[text.substr(0, equals)] = text.substr(equals + 1);
  }
  merged.erase("PENSTOCK_ON_HOST");  // set if this session itself runs in a worker on a host
  for (const auto& [name, value] : extra) merged[name] = value;
  // Only the GPU owner uses the GPU. Hiding it makes a stray CUDA call in a worker fail at once instead of
  // creating a context.
  merged["CUDA_VISIBLE_DEVICES"] = "";
  merged.erase(worker_variable);  // set if this session itself runs in a worker
  std::vector<std::string> list;
  list.reserve(merged.size());
  for (const auto& [name, value] : merged) list.push_back(name + "=" + value);
  return list;
}

worker_processes::worker_processes(process::io_thread& io, worker_program program)
    : io_(io), program_(std::move(program)), template_restarts_(program_.template_restarts, 1) {}

void worker_processes::start(worker_ref who) {
  boost::asio::post(io_.context(), [self = shared_from_this(), who] { self->start_now(who); });
}

void worker_processes::start_now(worker_ref who) {
  if (shut_down_) return;
  starting_[who.worker] = {who, {}, {}};
  process::child_callbacks process_calls;
  process_calls.output = [this, who](std::string_view line) {
    listeners_.output->wrote(source_of(who), who.incarnation, line);
  };
  process_calls.exited = [this, who](const process::exit_report& report, const process::output_tail& tail) {
    on_end(who, report, tail);
  };
  if (program_.remote && program_.remote->has(who.worker)) {
    return program_.remote->start(who, std::move(process_calls),
                                  [self = shared_from_this(), who](result<remote_child> child) {
                                    self->started_elsewhere(who, std::move(child));
                                  });
  }
  auto environment = program_.environment;
  environment.push_back(fmt::format("{}={}", worker_variable, who.worker));
  if (program_.forked && !template_) make_template();
  decltype(linked_child_request::start_with) from_template;
  if (template_) {
    from_template = [this, who](process::spawn_request request, process::spawner::done then) {
      return template_->start(who.worker, std::move(request), std::move(then));
    };
  }
  auto control = start_linked_child(
      io_,
      {.who = "a worker",
       .program = program_.command.front(),
       .arguments = {program_.command.begin() + 1, program_.command.end()},
       .environment = std::move(environment),
       .lifeline = program_.lifeline,
       .arena = program_.arena,
       .flight = program_.flight,
       .indexes = program_.indexes,
       .cores = program_.cores.of(who.worker),
       .parcels = program_.parcels,
       .start_with = std::move(from_template)},
      std::move(process_calls),
      [self = shared_from_this(), who](result<linked_child> child) { self->started(who, std::move(child)); });
  // The start may already have failed.
  if (const auto it = starting_.find(who.worker); it != starting_.end())
    it->second.control = std::move(control);
}

// ---- the template -----------------------------------------------------------------------------------------

void worker_processes::make_template() {
  process::spawn_request program{program_.command.front(),
                                 {program_.command.begin() + 1, program_.command.end()},
                                 program_.environment,
                                 {}};
  std::erase_if(program.environment, process::is_secret);
  template_ = std::make_unique<process::worker_template>(
      io_, std::move(program),
      process::worker_template::callbacks{
          [this](std::string_view line) { listeners_.output->wrote(template_source, 0, line); },
          [this](std::string text) {
            const std::lock_guard hold(mutex_);
            waits_for_ = std::move(text);
          },
          [this](std::uint32_t worker, pid_t pid, const process::exit_report& report,
                 const process::output_tail& tail) { template_ended(worker, pid, report, tail); },
          [this] { template_restarts_.child_ready(std::chrono::steady_clock::now()); },
          [this]() -> std::optional<steady_time> {
            const auto next = template_restarts_.child_died(std::chrono::steady_clock::now(), {});
            if (next.act == supervision::restart_decision::what::fail) return std::nullopt;
            return next.at;
          }});
}

/// Reports that a worker that waited for the template ended as the template did, because an executed worker would
/// have ended in the same way.
void worker_processes::template_ended(std::uint32_t worker, pid_t pid, const process::exit_report& report,
                                      const process::output_tail& tail) {
  const auto it = starting_.find(worker);
  if (it == starting_.end()) return;
  const worker_ref who = it->second.who;
  starting_.erase(it);
  auto ends = protocol::make_link_pair();
  if (!ends) return actors::tell(listeners_.supervisor, start_refused{who, std::move(ends.error())});
  auto link = protocol::worker_link::make(io_.context(), std::move(ends->first), {});
  actors::tell(listeners_.supervisor, worker_started{who, pid, link, nullptr});
  link->close();
  actors::tell(listeners_.supervisor, worker_exited{who, report,
                                                    process::last_lines_without_stack(
                                                        tail.text(), process::output_tail::lines_shown),
                                                    process::stack_in(tail.text())});
}

std::string worker_processes::current_start() const {
  std::string current = io_.spawner().current();
  if (!current.empty()) return current;
  const std::lock_guard hold(mutex_);
  return waits_for_.empty() ? current : "its template is " + waits_for_;
}

// ---- events -----------------------------------------------------------------------------------------------

void worker_processes::started(worker_ref who, result<linked_child> child) {
  if (shut_down_) return;  // the child is shut down as well
  std::vector<int> signals;
  if (const auto it = starting_.find(who.worker); it != starting_.end() && it->second.who == who) {
    signals = std::move(it->second.signals);
    starting_.erase(it);
  }
  if (!child) {
    failure why = child.error();
    if (why.code == errc::worker_program) why.message = "[loader] command: " + why.message;
    return actors::tell(listeners_.supervisor, start_refused{who, std::move(why)});
  }
  const pid_t pid = child->process->pid();
  introduce(who, pid, std::move(*child));
  for (const int number : signals) running_.at(who.worker).process->signal(number);
}

void worker_processes::started_elsewhere(worker_ref who, result<remote_child> child) {
  if (shut_down_) return;
  starting_.erase(who.worker);
  if (!child) return actors::tell(listeners_.supervisor, start_refused{who, std::move(child.error())});
  introduce(who, child->pid, {nullptr, std::move(child->link), std::move(child->parcels)});
}

void worker_processes::introduce(worker_ref who, pid_t pid, linked_child child) {
  protocol::worker_link::callbacks link_calls;
  link_calls.received = [this, who](protocol::from_worker&& message) { hear(who, std::move(message)); };
  link_calls.closed = [this, who](const std::string& reason) {
    actors::tell(listeners_.supervisor, worker_lost_link{who, reason});
  };
  link_calls.unasked_max = unasked_messages_max;
  auto link = protocol::worker_link::make(io_.context(), std::move(child.link), std::move(link_calls));

  running& entry = running_[who.worker];
  entry = {who, std::move(child.process), link};
  listeners_.output->started(source_of(who), who.incarnation);
  auto parcels = child.parcels ? std::make_shared<unique_fd>(std::move(child.parcels)) : nullptr;
  actors::tell(listeners_.supervisor, worker_started{who, pid, link, std::move(parcels), !entry.process});
  link->start();
}

void worker_processes::hear(worker_ref who, protocol::from_worker&& message) {
  if (!listeners_.reports->reported(who, message))
    actors::tell(listeners_.supervisor, worker_spoke{who, std::move(message)});
}

void worker_processes::on_end(worker_ref who, const process::exit_report& report,
                              const process::output_tail& tail) {
  const auto it = running_.find(who.worker);
  if (it == running_.end() || it->second.who != who) return;
  // Messages that it sent before it died still count. Do not wait for end of file: a grandchild may hold the
  // socket open.
  it->second.link->drain();
  it->second.link->close();
  listeners_.output->ended(source_of(who));
  actors::tell(listeners_.supervisor, worker_exited{who, report,
                                                    process::last_lines_without_stack(
                                                        tail.text(), process::output_tail::lines_shown),
                                                    process::stack_in(tail.text())});
  running_.erase(who.worker);
}

void worker_processes::signal(worker_ref who, int number) {
  boost::asio::post(io_.context(), [self = shared_from_this(), who, number] {
    const auto it = self->running_.find(who.worker);
    if (it != self->running_.end() && it->second.who == who && it->second.process)
      return it->second.process->signal(number);
    if (self->program_.remote && self->program_.remote->has(who.worker)) return self->program_.remote->signal(who, number);
    const auto born = self->starting_.find(who.worker);
    if (born == self->starting_.end() || born->second.who != who) return;
    born->second.signals.push_back(number);  // it may have started in the meantime
    if (number != SIGKILL) return;
    if (born->second.control) return born->second.control->give_up();
    if (self->template_) self->template_->give_up(who.worker);
  });
}

void worker_processes::shut_down() {
  std::promise<void> done;
  boost::asio::post(io_.context(), [&] {
    shut_down_ = true;
    // Signal all workers first: reaping waits for one after another.
    for (auto& [index, entry] : running_)
      if (entry.process) entry.process->signal(SIGKILL);
    for (auto& [index, entry] : running_) entry.link->close();
    running_.clear();
    template_.reset();
    listeners_ = {};
    done.set_value();
  });
  done.get_future().wait();
}

}  // namespace penstock::supervisor
