#include "actors/supervisor/lone_worker.hpp"

#include "actors/protocol/config_bytes.hpp"
#include "actors/protocol/hello.hpp"
#include "actors/protocol/link.hpp"
#include "actors/protocol/tensors.hpp"
#include "runtime/base/layout.hpp"
#include "runtime/base/patient_deadline.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/process/crash_notes.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <future>
#include <iterator>
#include <variant>

namespace penstock::supervisor {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds time_to_end{2000};
constexpr milliseconds look_every_max{100};  // to notice that the caller has given up

std::string file_name(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

steady_time now() {
  return std::chrono::steady_clock::now();
}

nanoseconds look_every(nanoseconds deadline) {
  return look_interval(deadline, look_every_max);
}

int as_ms(nanoseconds time) {
  return static_cast<int>(std::chrono::ceil<milliseconds>(time).count());
}

patient_deadline deadline_in(nanoseconds deadline) {
  patient_deadline until(deadline, look_every(deadline));
  until.restart(now());
  return until;
}

tl::unexpected<failure> nobody_waits() {
  return refuse(errc::stopped, "no caller waits for it any more");
}

}  // namespace

result<std::unique_ptr<lone_worker>> lone_worker::start(const lone_worker_request& request) {
  auto memory = arena::arena::create();
  if (!memory) return tl::unexpected(std::move(memory.error()));
  auto flights = arena::flight_recorders::create(1);
  if (!flights) return tl::unexpected(std::move(flights.error()));
  auto output = process::output_file::create();
  if (!output) return tl::unexpected(std::move(output.error()));
  auto made = std::unique_ptr<lone_worker>(
      new lone_worker(std::move(*memory), std::move(*flights), std::move(*output), request));
  if (auto ok = made->launch(request); !ok) return tl::unexpected(std::move(ok.error()));
  return made;
}

lone_worker::~lone_worker() {
  if (child_.pid <= 0) return;
  process::signal_group(child_, SIGKILL);
  static_cast<void>(process::reap(child_, time_to_end));
}

result<void> lone_worker::launch(const lone_worker_request& request) {
  auto lifeline = process::lifeline::create();
  if (!lifeline) return tl::unexpected(std::move(lifeline.error()));
  lifeline_ = std::move(*lifeline);
  auto ends = protocol::make_link_pair();
  if (!ends) return tl::unexpected(std::move(ends.error()));
  socket_ = std::move(ends->first);
  process::spawn_request spawn{request.command.front(),
                               {request.command.begin() + 1, request.command.end()},
                               request.environment,
                               {{output_.fd(), STDOUT_FILENO},
                                {output_.fd(), STDERR_FILENO},
                                {ends->second.get(), protocol::child_fd::link},
                                {lifeline_.read_end.get(), protocol::child_fd::lifeline},
                                {memory_.fd(), protocol::child_fd::arena},
                                {flights_.fd(), protocol::child_fd::flight}}};
  for (std::size_t i = 0; i < request.indexes.size(); ++i)
    if (request.indexes[i] >= 0) spawn.fds.push_back({request.indexes[i], protocol::child_fd::index + static_cast<int>(i)});
  const auto started = std::make_shared<std::promise<result<process::unclaimed_child>>>();
  auto outcome = started->get_future();
  const auto control =
      starter_.start(std::move(spawn), [started](result<process::unclaimed_child> made) { started->set_value(std::move(made)); });
  patient_deadline until = deadline_in(deadline_);
  while (outcome.wait_for(look_every(deadline_)) != std::future_status::ready) {
    if (!given_up() && !until.is_over(now())) continue;
    auto no = given_up() ? nobody_waits()
                         : refuse(errc::timed_out, "{} has not returned for {}: its file system is not responding", starter_.current(),
                                  duration_for_people(deadline_));
    if (control) control->give_up();
    return no;
  }
  auto child = outcome.get();
  if (!child) return tl::unexpected(std::move(child.error()));
  program_ = child->program();
  child_ = std::move(*child).claim();
  return {};
}

std::string lone_worker::how_it_ended(std::string_view doing) {
  const auto end = process::reap(child_, time_to_end);
  std::string how = "closed its link";
  if (end && end->ending == process::exit_report::how::signalled) how = "was killed by " + process::signal_name(end->code);
  if (end && end->ending == process::exit_report::how::exited) how = fmt::format("exited with {}", end->code);
  if (end) child_ = {};
  const std::string text = output_.text();
  const std::string said = process::last_line(process::last_lines_without_stack(text, 1));
  const std::vector<std::string> stack = process::stack_in(text);
  const std::string_view step = arena::preparation_in_words(flights_.read(0).state.at);
  return fmt::format("{} {} {}{}{}", printable(file_name(program_)), how, step.empty() ? std::string(doing) : fmt::format("while {}", step),
                     stack.empty() ? "" : " (in " + file_name(stack.front()) + ")", said.empty() ? "" : "; it wrote: " + said);
}

result<protocol::from_worker> lone_worker::hear(nanoseconds deadline, std::string_view doing) {
  patient_deadline until = deadline_in(deadline);
  while (heard_.empty()) {
    if (given_up()) return nobody_waits();
    pollfd news{socket_.get(), POLLIN, 0};
    if (::poll(&news, 1, as_ms(look_every(deadline))) > 0) {
      if (auto ok = read(doing); !ok) return tl::unexpected(std::move(ok.error()));
    }
    if (heard_.empty() && until.is_over(now()))
      return refuse(errc::timed_out, "it did not answer within {} {}", duration_for_people(deadline), doing);
  }
  protocol::from_worker first = std::move(heard_.front());
  heard_.erase(heard_.begin());
  if (const auto* gave_up = std::get_if<protocol::worker_gives_up>(&first)) return refuse(errc::dataset, "{}", gave_up->reason);
  return first;
}

result<void> lone_worker::read(std::string_view doing) {
  std::array<char, 4096> piece;  // NOLINT(cppcoreguidelines-pro-type-member-init): written by recv
  const ssize_t bytes = ::recv(socket_.get(), piece.data(), piece.size(), MSG_DONTWAIT);
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return {};
  if (bytes <= 0) return refuse(errc::worker_program, "{}", how_it_ended(doing));
  return reader_.feed({piece.data(), static_cast<std::size_t>(bytes)},
                      [&](protocol::from_worker&& m) { heard_.push_back(std::move(m)); });
}

/// Sends a message. Does not notice a dead worker: hear() does.
result<void> lone_worker::say(const protocol::to_worker& message, std::string_view doing) {
  std::vector<char> bytes;
  static_cast<void>(protocol::append_frame(bytes, message));
  patient_deadline until = deadline_in(deadline_);
  for (std::size_t done = 0; done < bytes.size();) {
    if (given_up()) return nobody_waits();
    const ssize_t sent = ::send(socket_.get(), bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      done += static_cast<std::size_t>(sent);
      continue;
    }
    if (errno != EAGAIN && errno != EINTR) return {};
    pollfd room{socket_.get(), POLLOUT, 0};
    ::poll(&room, 1, as_ms(look_every(deadline_)));
    if (until.is_over(now())) return refuse(errc::timed_out, "it read no message within {} {}", duration_for_people(deadline_), doing);
  }
  return {};
}

result<void> lone_worker::greet() {
  if (greeted_) return {};
  const auto first = hear(deadline_, "before saying hello");
  if (!first) return tl::unexpected(first.error());
  const auto* hello = std::get_if<protocol::hello>(&*first);
  constexpr std::string_view unlike = "it is not a penstock worker program";
  const std::string why = hello == nullptr ? std::string(unlike) : protocol::refusal_of(*hello, unlike);
  if (!why.empty()) return refuse(errc::worker_program, "{}", why);
  greeted_ = true;
  return {};
}

result<dataset_description> lone_worker::open(const config& settings) {
  if (auto ok = greet(); !ok) return tl::unexpected(std::move(ok.error()));
  constexpr std::string_view doing = "while opening the dataset";
  if (auto ok = say(protocol::open_dataset{protocol::version, {0, 1}, protocol::config_as_bytes(settings)}, doing); !ok)
    return tl::unexpected(std::move(ok.error()));
  const auto second = hear(deadline_, doing);
  if (!second) return tl::unexpected(second.error());
  if (std::holds_alternative<protocol::functions_described>(*second))
    return refuse(errc::worker_program, "it serves functions of a pool (penstock::job_main), not a dataset (penstock::worker_main)");
  const auto* said = std::get_if<protocol::dataset_described>(&*second);
  if (said == nullptr) return refuse(errc::protocol, "it did not describe the dataset");
  auto tensors = protocol::from_wire(said->tensors);
  if (!tensors) return tl::unexpected(std::move(tensors.error()));
  return dataset_description{said->type, said->samples, std::move(*tensors), said->fingerprint};
}

result<void> lone_worker::set_up(const dataset_description& dataset, std::uint32_t samples) {
  auto layout = lay_out(dataset.tensors, samples);
  if (!layout) return tl::unexpected(std::move(layout.error()));
  const arena::geometry shape{layout->bytes, 1, 1};
  if (auto ok = memory_.size_and_seal(shape); !ok) return ok;
  constexpr std::string_view doing = "while setting up the dataset";
  const protocol::assign_slots slots{.slot_bytes = shape.slot_bytes, .slots = 1, .partitions = 1, .batch_size = samples};
  if (auto ok = say(slots, doing); !ok) return ok;
  const auto third = hear(deadline_, doing);
  if (!third) return tl::unexpected(third.error());
  return {};
}

result<std::vector<std::string>> lone_worker::name(std::span<const std::uint64_t> samples) {
  constexpr std::string_view doing = "while naming samples";
  std::vector<std::string> names;
  while (names.size() < samples.size()) {
    const auto some = samples.subspan(names.size(), std::min(samples.size() - names.size(), protocol::name_samples::samples_max));
    if (auto ok = say(protocol::name_samples{{some.begin(), some.end()}}, doing); !ok) return tl::unexpected(std::move(ok.error()));
    auto answer = hear(deadline_, doing);
    if (!answer) return tl::unexpected(std::move(answer.error()));
    auto* const said = std::get_if<protocol::samples_named>(&*answer);
    if (said == nullptr || said->names.size() != some.size()) return refuse(errc::protocol, "it did not name the samples");
    std::ranges::move(said->names, std::back_inserter(names));
  }
  return names;
}

result<protocol::from_worker> lone_worker::load(const protocol::load_batch& lease, nanoseconds deadline) {
  constexpr std::string_view doing = "while loading the first samples";
  if (auto ok = say(lease, doing); !ok) return tl::unexpected(std::move(ok.error()));
  return hear(deadline, doing);
}

}  // namespace penstock::supervisor
