#include "actors/supervisor/worker_processes.hpp"

#include "actors/caf/caf.hpp"
#include "runtime/process/crash_notes.hpp"
#include "runtime/process/inherited_environment.hpp"

#include <algorithm>

namespace penstock::supervisor {
namespace {

// Tells a worker its number through the environment, before the link does.
constexpr auto worker_variable = "PENSTOCK_WORKER";

// 2 for hello and worker_gives_up; the other 6 for messages in transit when it must stop.
constexpr std::uint64_t unasked_messages_max = 8;

const std::string template_source = "template";

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
    : child_processes(io, unasked_messages_max),
      program_(std::move(program)),
      template_restarts_(program_.template_restarts, 1) {}

// ---- starts -----------------------------------------------------------------------------------------------

bool worker_processes::is_remote(worker_ref who) const {
  return program_.remote && program_.remote->has(who.worker);
}

void worker_processes::launch(worker_ref who, process::child_callbacks calls) {
  if (!is_remote(who)) return child_processes::launch(who, std::move(calls));
  program_.remote->start(who, std::move(calls), [self = shared_from_this(), this, who](result<linked_child> made) {
    started(who, std::move(made));
  });
}

linked_child_request worker_processes::request_for(worker_ref who) {
  auto environment = program_.environment;
  environment.push_back(fmt::format("{}={}", worker_variable, who.worker));
  if (program_.forked && !template_) make_template();
  decltype(linked_child_request::start_with) from_template;
  if (template_) {
    from_template = [this, who](process::spawn_request request, process::spawner::done then) {
      return template_->start(who.worker, std::move(request), std::move(then));
    };
  }
  return {.who = "a worker",
          .program = program_.command.front(),
          .arguments = {program_.command.begin() + 1, program_.command.end()},
          .environment = std::move(environment),
          .lifeline = program_.lifeline,
          .arena = program_.arena,
          .flight = program_.flight,
          .indexes = program_.indexes,
          .cores = program_.cores.of(who.worker),
          .parcels = program_.parcels,
          .start_with = std::move(from_template)};
}

void worker_processes::signal_start(worker_ref who, child& one, int number) {
  if (is_remote(who)) return program_.remote->signal(who, number);
  child_processes::signal_start(who, one, number);
  if (number == SIGKILL && !one.control && template_) template_->give_up(who.worker);
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

/// Reports that a worker that waited for the template ended as the template did, because a worker started
/// with exec would have ended in the same way.
void worker_processes::template_ended(std::uint32_t worker, pid_t pid, const process::exit_report& report,
                                      const process::output_tail& tail) {
  const auto it = std::ranges::find_if(
      children_, [&](const auto& one) { return one.first.worker == worker && !one.second.link; });
  if (it == children_.end()) return;
  const worker_ref who = it->first;
  children_.erase(it);
  auto ends = protocol::make_link_pair();
  if (!ends) return tell_refused(who, std::move(ends.error()));
  auto link = protocol::worker_link::make(io_.context(), std::move(ends->first), {});
  actors::tell(listeners_.supervisor, worker_started{who, pid, link, nullptr});
  link->close();
  tell_ended(who, report, tail);
}

std::string worker_processes::current_start() const {
  std::string current = io_.spawner().current();
  if (!current.empty()) return current;
  const std::lock_guard hold(mutex_);
  return waits_for_.empty() ? current : "its template is " + waits_for_;
}

// ---- events -----------------------------------------------------------------------------------------------

void worker_processes::tell_started(worker_ref who, linked_child& made, const std::shared_ptr<child_link>& link) {
  auto parcels = made.parcels ? std::make_shared<unique_fd>(std::move(made.parcels)) : nullptr;
  actors::tell(listeners_.supervisor, worker_started{who, made.pid, link, std::move(parcels), made.host});
}

void worker_processes::tell_refused(worker_ref who, failure why) {
  if (why.code == errc::worker_program && !is_remote(who)) why.message = "[loader] command: " + why.message;
  actors::tell(listeners_.supervisor, start_refused{who, std::move(why)});
}

void worker_processes::tell_message(worker_ref who, protocol::from_worker&& message) {
  if (!listeners_.reports->reported(who, message))
    actors::tell(listeners_.supervisor, worker_spoke{who, std::move(message)});
}

void worker_processes::tell_closed(worker_ref who, const std::string& reason) {
  actors::tell(listeners_.supervisor, worker_lost_link{who, reason});
}

void worker_processes::tell_ended(worker_ref who, const process::exit_report& report,
                                  const process::output_tail& tail) {
  const int signal = report.ending == process::exit_report::how::signalled ? report.code : 0;
  actors::tell(listeners_.supervisor, worker_exited{who, report,
                                                    process::last_lines_without_stack(
                                                        tail.text(), process::output_tail::lines_shown),
                                                    process::stack_in(tail.text()), process::sender_in(tail.text(), signal)});
}

}  // namespace penstock::supervisor
