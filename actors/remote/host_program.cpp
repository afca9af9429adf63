#include "actors/remote/host_program.hpp"

#include "actors/supervisor/worker_processes.hpp"
#include "runtime/base/write_all.hpp"
#include "runtime/process/inherited_environment.hpp"

#include <boost/asio/post.hpp>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace penstock::hosts {
namespace {

using namespace std::chrono_literals;

// Environment variables that a host sets for its worker programs (python/penstock/worker.py).
constexpr auto setup_variable = "PENSTOCK_POOL_SETUP";
constexpr auto marks_variable = "PENSTOCK_HOST_MARKS";
constexpr auto worker_variable = "PENSTOCK_WORKER";

constexpr std::uint32_t template_deaths_max = 5;
constexpr auto template_pause = 1s;

std::string path_of(const unique_fd& file) {
  return fmt::format("/proc/{}/fd/{}", ::getpid(), file.get());
}

}  // namespace

// ---- files --------------------------------------------------------------------------------------------------

host_files::standing host_files::look(std::uint64_t number, const void* who) {
  const std::lock_guard hold(mutex_);
  if (here_.contains(number)) return standing::here;
  return fetched_by_.try_emplace(number, who).second ? standing::to_be_fetched : standing::on_its_way;
}

shelved_file host_files::find(std::uint64_t number) const {
  const std::lock_guard hold(mutex_);
  const auto found = here_.find(number);
  return found == here_.end() ? shelved_file{} : found->second;
}

void host_files::arrived(std::uint64_t number, shelved_file file) {
  const std::lock_guard hold(mutex_);
  fetched_by_.erase(number);
  if (!file.file) return;
  here_[number] = std::move(file);
  if (here_.size() > files_max) here_.erase(here_.begin());
}

void host_files::gone(const void* who) {
  const std::lock_guard hold(mutex_);
  std::erase_if(fetched_by_, [who](const auto& one) { return one.second == who; });
}

// ---- the template -------------------------------------------------------------------------------------------

host_template::host_template(process::io_thread& io, process::spawn_request program) {
  std::erase_if(program.environment, process::is_secret);
  template_ = std::make_unique<process::worker_template>(
      io, std::move(program),
      process::worker_template::callbacks{
          [](std::string_view) {},
          [](std::string) {},
          [this](std::uint32_t worker, pid_t pid, const process::exit_report& report, const process::output_tail& tail) {
            const auto found = waiting_.find(worker);
            if (found == waiting_.end()) return;
            const death died = std::move(found->second);
            waiting_.erase(found);
            died(pid, report, tail);
          },
          [this] { deaths_ = 0; },
          [this]() -> std::optional<steady_time> {
            if (++deaths_ > template_deaths_max) return std::nullopt;
            return std::chrono::steady_clock::now() + template_pause;
          }});
}

std::shared_ptr<process::start_control> host_template::start(std::uint32_t worker, process::spawn_request request,
                                                             process::spawner::done then, death died) {
  waiting_[worker] = std::move(died);
  return template_->start(worker, std::move(request), [this, worker, then = std::move(then)](result<process::unclaimed_child> made) {
    waiting_.erase(worker);
    then(std::move(made));
  });
}

// ---- the program --------------------------------------------------------------------------------------------

result<std::shared_ptr<host_program>> host_program::make(process::io_thread& io, const own_program& own, const std::string& code,
                                                         std::uint64_t marks_bytes, bool forks) {
  auto made = std::shared_ptr<host_program>(new host_program(io, own, forks));
  auto file = create_memory_file("penstock-pool-setup", "the session's code");
  if (!file) return tl::unexpected(std::move(file.error()));
  if (const int status = write_all(file->get(), std::as_bytes(std::span(code))); status != 0)
    return refuse_os(errc::out_of_memory, status, "storing the session's code");
  made->code_ = std::move(*file);
  if (marks_bytes == 0) return made;
  auto marks = create_memory_file("penstock-marks", "the file of job marks");
  if (!marks) return tl::unexpected(std::move(marks.error()));
  if (::ftruncate(marks->get(), static_cast<off_t>(marks_bytes)) != 0)
    return refuse_os(errc::out_of_memory, errno, "setting the size of the file of job marks");
  auto mapped = job_marks::map(marks->get(), marks_bytes);
  if (!mapped) return tl::unexpected(std::move(mapped.error()));
  made->marks_file_ = std::move(*marks);
  made->marks_ = std::make_unique<const job_marks>(std::move(*mapped));
  return made;
}

host_program::~host_program() {
  if (template_) boost::asio::post(io_.context(), [gone = std::shared_ptr<host_template>(std::move(template_))] {});
}

std::vector<std::string> host_program::environment(std::uint32_t worker) const {
  std::map<std::string, std::string> more(own_.environment.begin(), own_.environment.end());
  more[setup_variable] = path_of(code_);
  if (marks_file_) more[marks_variable] = path_of(marks_file_);
  auto all = supervisor::worker_environment(more);
  all.push_back(fmt::format("{}={}", worker_variable, worker));
  return all;
}

host_template* host_program::forker() {
  if (!forks_) return nullptr;
  if (!template_) {
    template_ = std::make_unique<host_template>(
        io_, process::spawn_request{own_.command.front(), {own_.command.begin() + 1, own_.command.end()}, environment(0), {}});
  }
  return template_.get();
}

}  // namespace penstock::hosts
