#include "runtime/base/cgroups.hpp"
#include "runtime/base/number.hpp"
#include "runtime/control/socket_place.hpp"
#include "runtime/process/child_end.hpp"
#include "runtime/process/cores.hpp"
#include "runtime/process/process_facts.hpp"
#include "runtime/process/spawn.hpp"
#include "tools/penstock/doctor/gather.hpp"
#include "tools/penstock/machine/root_files.hpp"
#include "tools/penstock/machine/throwaway.hpp"

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>

namespace penstock::doctor {

using namespace machine;

namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

// A child dies at once; longer means a broken kernel or a very busy machine.
constexpr std::chrono::milliseconds time_to_die = 5s;

std::optional<std::uint64_t> limit_of(std::istringstream& words) {
  std::string word;
  words >> word;
  return whole_number<std::uint64_t>(word);  // empty for "unlimited"
}

limit_pair limits_named(const fs::path& root, const std::string& name) {
  std::istringstream words(field_of(text_of(root / "proc/self/limits"), name));
  limit_pair pair;
  pair.soft = limit_of(words);
  pair.hard = limit_of(words);
  return pair;
}

/// pids.max of our cgroup and of all its ancestors, v1 and v2.
void add_cgroups(const fs::path& root, std::vector<pid_limit>& limits) {
  for (const cgroup_folder& group : cgroup_folders(root, "pids")) {
    const auto most = number_of<std::uint64_t>(group.path / "pids.max");
    if (!most) continue;
    const auto now = number_of<std::uint64_t>(group.path / "pids.current").value_or(0);
    limits.push_back(
        {"pids cgroup /" + fs::relative(group.path, root).string(), *most - std::min(*most, now)});
  }
}

struct process_entry {
  std::int32_t pid = 0;
  std::int32_t parent = 0;
  std::uint32_t user = 0;
  std::uint64_t threads = 0;
  std::string name;
};

std::vector<process_entry> all_processes(const fs::path& root) {
  std::vector<process_entry> all;
  std::error_code fault;
  for (const auto& entry : fs::directory_iterator(root / "proc", fault)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string status = text_of(entry.path() / "status");
    if (status.empty() || field_of(status, "State:").starts_with("Z")) continue;
    process_entry p;
    p.pid = std::atoi(name.c_str());
    p.parent = std::atoi(field_of(status, "PPid:").c_str());
    p.user = static_cast<std::uint32_t>(std::atoll(field_of(status, "Uid:").c_str()));
    p.threads = static_cast<std::uint64_t>(std::atoll(field_of(status, "Threads:").c_str()));
    p.name = field_of(status, "Name:");
    all.push_back(std::move(p));
  }
  return all;
}

/// Whether the process maps penstock's memory: a session maps the arena.
bool is_a_session(const fs::path& root, std::int32_t pid) {
  std::error_code fault;
  for (const auto& fd : fs::directory_iterator(root / fmt::format("proc/{}/fd", pid), fault)) {
    if (fs::read_symlink(fd.path(), fault).string().find("memfd:penstock") != std::string::npos) return true;
  }
  return false;
}

/// Workers end with their session; one whose parent is init has been left behind.
std::vector<leftover_process> orphans_among(const fs::path& root, const std::vector<process_entry>& all) {
  std::vector<leftover_process> found;
  for (const process_entry& p : all) {
    // The kernel cuts names at 15 bytes.
    const bool ours = p.name == "penstock-worker" || p.name == "penstock-gpu" || p.name == "penstock-probe";
    if (ours && p.parent == 1 && !is_a_session(root, p.parent)) found.push_back({p.pid, p.name});
  }
  return found;
}

std::vector<pid_limit> pid_limits(const fs::path& root, const std::vector<process_entry>& all) {
  std::vector<pid_limit> limits;
  std::uint64_t threads = 0;
  std::uint64_t mine = 0;
  const auto user =
      static_cast<std::uint32_t>(std::atoll(field_of(text_of(root / "proc/self/status"), "Uid:").c_str()));
  for (const process_entry& p : all) {
    threads += p.threads;
    if (p.user == user) mine += p.threads;
  }
  // The limit does not apply to root.
  if (const auto most = limits_named(root, "Max processes").soft; most && user != 0)
    limits.push_back({"ulimit -u", *most - std::min(*most, mine)});
  if (const auto most = number_of<std::uint64_t>(root / "proc/sys/kernel/pid_max"))
    limits.push_back({"kernel.pid_max", *most - std::min(*most, threads)});
  add_cgroups(root, limits);
  return limits;
}

std::string trouble(const char* doing) {
  return fmt::format("{}: {}", doing, std::strerror(errno));
}

std::string try_pidfd() {
  const unique_fd self(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0U)));
  if (!self) return trouble("pidfd_open");
  if (::syscall(SYS_pidfd_send_signal, self.get(), 0, nullptr, 0U) != 0) return trouble("pidfd_send_signal");
  pollfd end{self.get(), POLLIN, 0};
  if (::poll(&end, 1, 0) != 0) return "the pidfd of a live process is readable";
  return {};
}

std::string try_seals() {
  const unique_fd file(::memfd_create("penstock-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return trouble("memfd_create");
  if (::ftruncate(file.get(), 4096) != 0) return trouble("ftruncate of a memfd");
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return trouble("F_ADD_SEALS");
  if (::ftruncate(file.get(), 0) == 0) return "a sealed memfd can be shrunk";
  return {};
}

/// Checks that a child dies with its parent. The child holds one end of a pipe; the other end shows its
/// death.
std::string try_parent_death() {
  const auto program = process::find_program("penstock-probe");
  if (!program) return program.error().message;
  auto output = output_file::create();
  if (!output) return output.error().message;
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return trouble("pipe2");
  const unique_fd witness(ends[0]);
  unique_fd held(ends[1]);
  auto parent = process::spawn(
      {*program, {"leave-child"}, environment_now(), {{output->fd(), STDOUT_FILENO}, {held.get(), 3}}});
  if (!parent) return parent.error().message;
  held.reset();
  if (!process::reap(*parent, time_to_die)) return "penstock-probe did not end";
  const auto told = nlohmann::json::parse(output->text(), nullptr, false);
  if (!told.is_object() || !told.contains("child"))
    return "no child could be started: " + last_line(output->text());
  pollfd end{witness.get(), POLLIN, 0};
  if (::poll(&end, 1, static_cast<int>(time_to_die.count())) == 1) return {};
  ::kill(told["child"].get<pid_t>(), SIGKILL);  // the child holds the pipe, so its pid has not been reused
  return "a child survived its parent";
}

}  // namespace

machine_facts look_at_machine(const gather_options& options) {
  const fs::path& root = options.root;
  machine_facts m;
  m.memory = arena::memory_limits(root);
  m.open_files = limits_named(root, "Max open files");
  const auto processes = all_processes(root);
  m.pids = pid_limits(root, processes);
  m.allowed_cpus = process::parse_core_list(field_of(text_of(root / "proc/self/status"), "Cpus_allowed_list:"));
  m.usable_cores = process::usable_cores(root);
  m.pidfd = try_pidfd();
  m.parent_death = try_parent_death();
  m.memfd_seals = try_seals();
  m.orphans = orphans_among(root, processes);
  for (const auto& s : control::find_sessions())
    if (!s.alive) m.dead_sockets.push_back(s.path);
  return m;
}

}  // namespace penstock::doctor
