#include "runtime/process/process_facts.hpp"

#include "runtime/base/cgroups.hpp"
#include "runtime/base/death_words.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

namespace penstock::process {
namespace {

namespace fs = std::filesystem;

std::uint64_t kilobytes_behind(const std::string& line) {
  std::istringstream rest(line.substr(line.find(':') + 1));
  std::uint64_t value = 0;
  rest >> value;
  return value * 1024;
}

/// quota / period of one cgroup folder; infinity if it sets none.
double cpu_quota_in(const fs::path& folder) {
  double quota = -1;
  double period = 0;
  std::string first;
  if (std::ifstream v2(folder / "cpu.max"); v2 >> first >> period) {
    quota = first == "max" ? -1 : std::stod(first);
  } else if (std::ifstream v1(folder / "cpu.cfs_quota_us"); v1 >> quota) {
    std::ifstream(folder / "cpu.cfs_period_us") >> period;
  }
  return quota > 0 && period > 0 ? quota / period : INFINITY;
}

double cpu_quota(const fs::path& root) {
  double tightest = INFINITY;
  for (const cgroup_folder& group : cgroup_folders(root, "cpu"))
    tightest = std::min(tightest, cpu_quota_in(group.path));
  return tightest;
}

/// The number of cores in the kernel's list of allowed cores ("0-3,8"); 0 if unknown.
std::uint32_t allowed_cpus(const fs::path& root) {
  std::ifstream status(root / "proc/self/status");
  const std::string key = "Cpus_allowed_list:";
  std::string line;
  while (std::getline(status, line) && !line.starts_with(key)) {
  }
  std::uint32_t count = 0;
  std::istringstream parts(status ? line.substr(key.size()) : "");
  for (std::string part; std::getline(parts, part, ',');) {
    std::uint32_t low = 0;
    std::uint32_t high = 0;
    char dash = 0;
    std::istringstream range(part);
    if (!(range >> low)) continue;
    count += range >> dash >> high ? high - low + 1 : 1;
  }
  return count;
}

}  // namespace

std::optional<process_facts> look_at(pid_t pid) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  if (!status) return std::nullopt;
  process_facts facts;
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) facts.rss_anon_bytes = kilobytes_behind(line);
    if (line.starts_with("VmRSS:")) facts.rss_bytes = kilobytes_behind(line);
    if (line.starts_with("TracerPid:")) facts.traced = line.find_first_of("123456789") != std::string::npos;
    if (line.starts_with("PPid:"))
      facts.parent = static_cast<pid_t>(std::strtol(line.c_str() + 5, nullptr, 10));
  }
  return facts;
}

std::uint64_t own_rss_bytes() {
  static const int statm = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  char text[7 * (20 + 1) + 1] = {};  // seven numbers of up to 20 digits, a separator after each, and the terminating zero
  if (statm < 0 || ::pread(statm, text, sizeof text - 1, 0) <= 0) return 0;
  const char* second = std::strchr(text, ' ');
  if (second == nullptr) return 0;
  return std::strtoull(second, nullptr, 10) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

std::string wait_channel(pid_t pid, pid_t thread) {
  const std::string folder = fmt::format("/proc/{}/task/{}", pid, thread > 0 ? thread : pid);
  std::ifstream stat(folder + "/stat");
  std::string line;
  if (!std::getline(stat, line)) return {};
  const auto name_end = line.rfind(')');  // the name may contain anything
  const char state = name_end + 2 < line.size() ? line[name_end + 2] : '?';
  if (state == 'R') return "running";
  if (state == 'T' || state == 't') return std::string(suspended_channel);
  std::ifstream in(folder + "/wchan");
  std::string name;
  std::getline(in, name);
  if (name.empty() || name == "0") return "sleeping";
  return name;
}

std::optional<thread_times> times_of(pid_t pid, pid_t thread) {
  const std::string folder = fmt::format("/proc/{}/task/{}", pid, thread > 0 ? thread : pid);
  thread_times times;
  std::int64_t cpu = 0;
  std::int64_t core_wait = 0;
  if (std::ifstream scheduled(folder + "/schedstat"); scheduled >> cpu >> core_wait) {
    times.cpu = std::chrono::nanoseconds(cpu);
    times.core_wait = std::chrono::nanoseconds(core_wait);
    return times;
  }
  std::ifstream stat(folder + "/stat");  // fallback for a kernel without CONFIG_SCHED_INFO
  std::string line;
  if (!std::getline(stat, line)) return std::nullopt;
  std::istringstream fields(line.substr(std::min(line.rfind(')') + 1, line.size())));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;  // skips the fields from the state to cmajflt
  std::int64_t user = 0;
  std::int64_t system = 0;
  if (!(fields >> user >> system)) return std::nullopt;
  times.cpu = std::chrono::nanoseconds((user + system) * (1'000'000'000 / ::sysconf(_SC_CLK_TCK)));
  return times;
}

double usable_cpu(const fs::path& root) {
  std::uint32_t cores = 0;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (root == "/" && ::sched_getaffinity(0, sizeof allowed, &allowed) == 0)
    cores = static_cast<std::uint32_t>(CPU_COUNT(&allowed));
  // With another root, or with more cores than fit a cpu_set_t.
  if (cores == 0) cores = allowed_cpus(root);
  if (cores == 0) cores = std::max(std::thread::hardware_concurrency(), 1U);
  return std::min(static_cast<double>(cores), cpu_quota(root));
}

std::uint32_t usable_cores(const fs::path& root) {
  return std::max<std::uint32_t>(static_cast<std::uint32_t>(std::ceil(usable_cpu(root))), 1);
}

std::optional<std::string> gpu_use_of(pid_t pid) {
  const fs::path folder = fs::path("/proc") / std::to_string(pid);
  std::ifstream maps(folder / "maps");
  for (std::string line; std::getline(maps, line);) {
    const auto name = line.find("/libcuda.so");
    if (name != std::string::npos) return line.substr(name + 1) + " is mapped";
  }
  std::error_code status;
  for (const auto& fd : fs::directory_iterator(folder / "fd", status)) {
    std::error_code gone;
    const std::string target = fs::read_symlink(fd.path(), gone).native();
    if (target.starts_with("/dev/nvidia")) return target + " is open";
  }
  return std::nullopt;
}

std::vector<pid_t> descendants_of(pid_t pid) {
  std::vector<pid_t> found;
  std::error_code status;
  for (const auto& thread :
       fs::directory_iterator(fs::path("/proc") / std::to_string(pid) / "task", status)) {
    std::ifstream children(thread.path() / "children");
    for (pid_t child = 0; children >> child;) {
      found.push_back(child);
      const std::vector<pid_t> below = descendants_of(child);
      found.insert(found.end(), below.begin(), below.end());
    }
  }
  return found;
}

}  // namespace penstock::process
