// Shared by tests of pools with a GPU owner. They run on the host device; with PENSTOCK_TEST_DEVICE=cuda on a
// machine with a GPU, they run on that.
#pragma once

#include "tests/actors/jobs/support.hpp"

#include <signal.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>

namespace penstock::testing {

/// Path of a test file: next to this program, wherever that was copied, or in a folder there.
inline std::string beside(const std::string& name) {
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  for (const auto& candidate : {folder / name, folder / "device_programs" / name}) {
    if (std::filesystem::exists(candidate)) return candidate.string();
  }
  throw std::runtime_error("there is no " + name + " beside " + folder.string());
}

inline std::string tested_device() {
  const char* const given = std::getenv("PENSTOCK_TEST_DEVICE");
  return given != nullptr ? given : "host";
}

inline config with_programs(placement_rule placement, std::uint32_t workers = 2) {
  config c;
  c.name = "jobs";
  c.loader.command = {beside("odd-jobs")};
  c.loader.workers = workers;
  c.loader.restart.intensity.max = 1000;
  c.log.level = log_level::off;
  c.gpu.device = tested_device();
  c.gpu.placement = placement;
  c.gpu.share = true;
  c.jobs.programs = {{"moments", beside("moments.so")}, {"odd", beside("odd_job_program.so")}};
  return c;
}

inline job_options to_odd() {
  job_options options;
  options.program = "odd";
  return options;
}

inline job_options kept_on_device() {
  job_options options;
  options.on_device = true;
  return options;
}

/// A job that passes this text through "echo" to the device program "odd".
inline Job odd(Pool& pool, const std::string& text) {
  return pool.submit("echo", text, to_odd());
}

inline unsigned long long number_in(const Result& result) {
  unsigned long long value = 0;
  if (result.bytes().size() == sizeof value) std::memcpy(&value, result.bytes().data(), sizeof value);
  return value;
}

inline job_failure failure_of(Job job) {
  try {
    job.get();
  } catch (const job_error& failed) {
    return failed.why();
  }
  return {job_status::ok, {}, "it has a result", {}, {}, 0};
}

/// Kills one process. Refuses 0 and negative numbers, which mean
/// groups: kill(0) would end ctest and the shell that started it.
inline void kill_process(std::int32_t pid) {
  if (pid <= 1) throw std::invalid_argument("pid " + std::to_string(pid) + " is not a process of a test");
  if (::kill(pid, SIGKILL) != 0)
    throw std::system_error(errno, std::generic_category(), "killing " + std::to_string(pid));
}

/// A path that does not exist; the destructor removes whatever is created there.
class signal_file {
 public:
  signal_file() {
    char name[] = "/tmp/penstock-test-XXXXXX";
    folder_ = ::mkdtemp(name);
  }
  ~signal_file() {
    give();  // lets a program that waits for the signal continue
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  signal_file(const signal_file&) = delete;
  signal_file& operator=(const signal_file&) = delete;
  [[nodiscard]] std::string path() const { return folder_ + "/go"; }
  void give() const { std::ofstream(path()) << "go"; }
  /// Waits until a program has begun to wait for the file.
  void await_begin() const {
    await([this] { return std::filesystem::exists(path() + ".begun"); });
  }

 private:
  std::string folder_;
};

}  // namespace penstock::testing
