#include "actors/protocol/config_bytes.hpp"
#include "actors/protocol/tensors.hpp"
#include "actors/protocol/wire.hpp"
#include "actors/supervisor/worker_processes.hpp"
#include "runtime/arena/arena.hpp"
#include "runtime/arena/flight_recorder.hpp"
#include "runtime/base/layout.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/process/child_end.hpp"
#include "runtime/process/crash_notes.hpp"
#include "runtime/process/lifeline.hpp"
#include "runtime/process/spawner.hpp"
#include "tools/penstock/doctor/gather.hpp"
#include "tools/penstock/machine/throwaway.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <fstream>
#include <future>
#include <memory>
#include <variant>

namespace penstock::doctor {

using namespace machine;

namespace {

namespace fs = std::filesystem;
using clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::uint32_t samples_max = 8;
constexpr milliseconds time_to_end{2000};

/// One worker, started as in a session but driven by one thread.
class probation {
 public:
  probation(const config& settings, worker_facts& told) : settings_(settings), told_(told) {}
  ~probation() {
    if (child_.pid <= 0) return;
    process::signal_group(child_, SIGKILL);
    static_cast<void>(process::reap(child_, time_to_end));
  }
  probation(const probation&) = delete;
  probation& operator=(const probation&) = delete;

  /// Starts the process with its inherited descriptors.
  result<void> start(const std::vector<int>& indexes);
  /// The next message; a refusal describes the worker's failure.
  result<protocol::from_worker> hear(milliseconds deadline, std::string_view doing);
  void say(const protocol::to_worker& message);
  result<void> make_slots(const dataset_description& d, std::uint32_t samples);
  [[nodiscard]] std::vector<std::string> cuda_traces() const;
  [[nodiscard]] pid_t pid() const { return child_.pid; }

 private:
  [[nodiscard]] std::string how_it_ended(std::string_view doing);

  const config& settings_;
  worker_facts& told_;
  process::lifeline lifeline_;
  std::optional<arena::arena> memory_;
  std::optional<arena::flight_recorders> flights_;
  std::optional<output_file> output_;
  unique_fd socket_;
  process::spawner starter_;  // its thread must live as long as the child, as in a session
  process::child child_;
  protocol::frame_reader<protocol::from_worker> reader_;
  std::vector<protocol::from_worker> heard_;
};

result<void> probation::start(const std::vector<int>& indexes) {
  const auto& command = settings_.loader.command;
  auto lifeline_made = process::lifeline::create();
  if (!lifeline_made) return tl::unexpected(std::move(lifeline_made.error()));
  lifeline_ = std::move(*lifeline_made);
  auto memory = arena::arena::create();
  if (!memory) return tl::unexpected(std::move(memory.error()));
  memory_.emplace(std::move(*memory));
  auto flights = arena::flight_recorders::create(1);
  if (!flights) return tl::unexpected(std::move(flights.error()));
  flights_.emplace(std::move(*flights));
  auto output = output_file::create();
  if (!output) return tl::unexpected(std::move(output.error()));
  output_.emplace(std::move(*output));
  auto ends = protocol::make_link_pair();
  if (!ends) return tl::unexpected(std::move(ends.error()));
  socket_ = std::move(ends->first);
  process::spawn_request request{command.front(),
                                 {command.begin() + 1, command.end()},
                                 supervisor::worker_environment(settings_.loader.env),
                                 {{output_->fd(), STDOUT_FILENO},
                                  {output_->fd(), STDERR_FILENO},
                                  {ends->second.get(), protocol::child_fd::link},
                                  {lifeline_.read_end.get(), protocol::child_fd::lifeline},
                                  {memory_->fd(), protocol::child_fd::arena},
                                  {flights_->fd(), protocol::child_fd::flight}}};
  for (std::size_t i = 0; i < indexes.size(); ++i)
    if (indexes[i] >= 0) request.fds.push_back({indexes[i], protocol::child_fd::index + static_cast<int>(i)});
  const auto started = std::make_shared<std::promise<result<process::unclaimed_child>>>();
  auto outcome = started->get_future();
  const auto control = starter_.start(std::move(request), [started](result<process::unclaimed_child> made) {
    started->set_value(std::move(made));
  });
  const std::chrono::nanoseconds deadline = settings_.loader.hang.start_deadline;
  if (outcome.wait_for(deadline) != std::future_status::ready) {
    auto no = refuse(errc::worker_program, "{} has not returned for {}: its file system does not answer",
                     starter_.current(), duration_for_people(deadline));
    control->give_up();
    return no;
  }
  auto child = outcome.get();
  if (!child) return tl::unexpected(std::move(child.error()));
  told_.program = child->program();
  child_ = std::move(*child).claim();
  return {};
}

std::string probation::how_it_ended(std::string_view doing) {
  const auto end = process::reap(child_, time_to_end);
  std::string how = "closed its link";
  if (end && end->ending == process::exit_report::how::signalled)
    how = "was killed by " + process::signal_name(end->code);
  if (end && end->ending == process::exit_report::how::exited) how = fmt::format("exited with {}", end->code);
  if (end) child_ = {};
  const std::string text = output_->text();
  const std::string said = last_line(process::last_lines_without_stack(text, 1));
  const std::vector<std::string> stack = process::stack_in(text);
  return fmt::format("{} {} {}{}{}", printable(fs::path(told_.program).filename().string()), how, doing,
                     stack.empty() ? "" : " (in " + fs::path(stack.front()).filename().string() + ")",
                     said.empty() ? "" : "; it wrote: " + said);
}

result<protocol::from_worker> probation::hear(milliseconds deadline, std::string_view doing) {
  const auto until = clock::now() + deadline;
  while (heard_.empty()) {
    const auto left = std::chrono::ceil<milliseconds>(until - clock::now());
    pollfd news{socket_.get(), POLLIN, 0};
    const int ready = ::poll(&news, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0)
      return refuse(errc::timed_out, "it did not answer within {} {}", duration_for_people(deadline), doing);
    std::array<char, 4096> piece;
    const ssize_t bytes = ::read(socket_.get(), piece.data(), piece.size());
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (bytes <= 0) return refuse(errc::worker_program, "{}", how_it_ended(doing));
    const auto ok = reader_.feed({piece.data(), static_cast<std::size_t>(bytes)},
                                 [&](protocol::from_worker&& m) { heard_.push_back(std::move(m)); });
    if (!ok) return tl::unexpected(ok.error());
  }
  protocol::from_worker first = std::move(heard_.front());
  heard_.erase(heard_.begin());
  if (const auto* gave_up = std::get_if<protocol::worker_gives_up>(&first))
    return refuse(errc::dataset, "{}", gave_up->reason);
  return first;
}

void probation::say(const protocol::to_worker& message) {
  std::vector<char> bytes;
  protocol::append_frame(bytes, message);
  // A few hundred bytes into an empty socket: never a partial write. hear() notices a dead worker.
  static_cast<void>(::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
}

result<void> probation::make_slots(const dataset_description& d, std::uint32_t samples) {
  auto layout = lay_out(d.tensors, samples);
  if (!layout) return tl::unexpected(std::move(layout.error()));
  const arena::geometry shape{layout->bytes, 1, 1};
  if (auto ok = memory_->size_and_seal(shape); !ok) return ok;
  say(protocol::assign_slots{
      .slot_bytes = shape.slot_bytes, .slots = 1, .partitions = 1, .batch_size = samples});
  return {};
}

/// CUDA libraries and devices that the worker holds: only the GPU owner may use the GPU.
std::vector<std::string> probation::cuda_traces() const {
  std::vector<std::string> found;
  const auto add = [&](const std::string& what) {
    if (std::ranges::find(found, what) == found.end()) found.push_back(what);
  };
  std::ifstream maps(fmt::format("/proc/{}/maps", child_.pid));
  for (std::string line; std::getline(maps, line);) {
    const auto path = line.find('/');
    if (path == std::string::npos) continue;
    const std::string file = fs::path(line.substr(path)).filename();
    if (file.starts_with("libcuda.so") || file.starts_with("libcudart.so") ||
        file.starts_with("libnvcuvid.so"))
      add(printable(line.substr(path)));
  }
  std::error_code fault;
  for (const auto& fd : fs::directory_iterator(fmt::format("/proc/{}/fd", child_.pid), fault)) {
    const std::string target = fs::read_symlink(fd.path(), fault);
    if (target.starts_with("/dev/nvidia")) add(target);
  }
  return found;
}

result<dataset_description> description_of(const protocol::dataset_described& said) {
  auto tensors = protocol::from_wire(said.tensors);
  if (!tensors) return tl::unexpected(std::move(tensors.error()));
  return dataset_description{said.type, said.samples, std::move(*tensors), said.fingerprint};
}

milliseconds as_milliseconds(std::chrono::nanoseconds time) {
  return std::chrono::ceil<milliseconds>(time);
}

/// Each step records its findings in the facts and returns whether to continue.
class steps {
 public:
  steps(const config& settings, probation_result& all)
      : settings_(settings), all_(all), told_(all.worker), worker_(settings, all.worker) {}

  bool greet(const std::vector<int>& indexes) {
    if (auto ok = worker_.start(indexes); !ok) return broken(told_.broken, ok.error());
    const auto first = worker_.hear(start_deadline_, "before saying hello");
    if (!first) return broken(told_.protocol_trouble, first.error().message);
    const auto* hello = std::get_if<protocol::hello>(&*first);
    if (hello == nullptr || hello->magic != protocol::hello::expected_magic)
      return broken(told_.protocol_trouble, "its first message is not hello");
    if (hello->version != protocol::version) {
      return broken(told_.protocol_trouble, fmt::format("it speaks protocol {}, but this session speaks {}",
                                                        hello->version, protocol::version));
    }
    told_.spoke = true;
    told_.cuda_traces = worker_.cuda_traces();
    return true;
  }

  bool open_dataset() {
    config on_cpu = settings_;
    on_cpu.image.decoder = decoder_rule::cpu;  // no device is there
    worker_.say(protocol::open_dataset{protocol::version, {0, 1}, protocol::config_as_bytes(on_cpu)});
    const auto second = worker_.hear(start_deadline_, "while opening the dataset");
    if (!second) return broken(told_.dataset_trouble, second.error());
    const auto* said = std::get_if<protocol::dataset_described>(&*second);
    if (said == nullptr) {
      const bool serves_jobs = std::holds_alternative<protocol::functions_described>(*second);
      return broken(told_.dataset_trouble,
                    serves_jobs ? failure{errc::worker_program,
                                          "it serves functions of a pool (penstock::job_main), not a dataset "
                                          "(penstock::worker_main)",
                                          0}
                                : failure{errc::protocol, "it did not describe the dataset", 0});
    }
    auto described = description_of(*said);
    if (!described) return broken(told_.dataset_trouble, described.error());
    all_.described = *described;
    samples_ = static_cast<std::uint32_t>(
        std::min<std::uint64_t>({described->samples, samples_max, settings_.sampler.batch_size}));
    if (samples_ == 0)
      return broken(told_.dataset_trouble, failure{errc::dataset, "the dataset has no samples", 0});
    if (auto ok = worker_.make_slots(*described, samples_); !ok)
      return broken(told_.dataset_trouble, ok.error());
    const auto third = worker_.hear(start_deadline_, "while setting up the dataset");
    return third || broken(told_.dataset_trouble, third.error());
  }

  bool load() {
    protocol::load_batch lease{0, 1, 0, {}};
    for (std::uint32_t i = 0; i < samples_; ++i) lease.samples.push_back({i, 1});
    told_.samples_tried = samples_;
    worker_.say(lease);
    const auto fourth =
        worker_.hear(as_milliseconds(settings_.loader.hang.item_timeout), "while loading the first samples");
    const auto* loaded = fourth ? std::get_if<protocol::batch_loaded>(&*fourth) : nullptr;
    if (loaded == nullptr)
      return broken(told_.load_trouble, fourth ? "it did not complete a lease" : fourth.error().message);
    told_.loaded = true;
    told_.samples_good = std::min(loaded->rows, samples_);
    if (!loaded->failures.empty()) {
      told_.first_failure = fmt::format("{}: {}", printable(loaded->failures.front().name),
                                        printable(loaded->failures.front().reason));
    }
    // Decoders may load libraries only now.
    for (std::string& trace : worker_.cuda_traces())
      if (std::ranges::find(told_.cuda_traces, trace) == told_.cuda_traces.end())
        told_.cuda_traces.push_back(std::move(trace));
    return true;
  }

 private:
  template <class Place, class Reason>
  static bool broken(Place& place, Reason&& why) {
    place = std::forward<Reason>(why);
    return false;
  }

  const config& settings_;
  probation_result& all_;
  worker_facts& told_;
  probation worker_;
  const milliseconds start_deadline_ = as_milliseconds(settings_.loader.hang.start_deadline);
  std::uint32_t samples_ = 0;
};

}  // namespace

probation_result try_a_worker(const config& settings, bool load, const std::vector<int>& indexes) {
  probation_result all;
  std::string& command = all.worker.command;
  for (const auto& word : settings.loader.command) command += (command.empty() ? "" : " ") + word;
  steps worker(settings, all);
  if (worker.greet(indexes) && load && worker.open_dataset()) worker.load();
  return all;
}

}  // namespace penstock::doctor
