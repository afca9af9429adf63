// Runs the device programs of jobs, one after another, on the calling thread: the main thread of the owner's
// process, or a thread of the pool. Loads each program when the first job names it.
#pragma once

#include "actors/gpu_owner/hand_over.hpp"
#include "actors/protocol/local/job_messages.hpp"
#include "runtime/base/result.hpp"
#include "runtime/device/device.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace penstock {
class JobProgram;
}

namespace penstock::gpu_owner {

/// Limits a program's own result, which is sent in one message. job_program.hpp documents the limit.
inline constexpr std::uint64_t program_result_bytes_max = 1U << 20U;

/// Used from one thread. The device must be open when run() is called.
class job_programs {
 public:
  /// `programs`: paths by name ([jobs.programs]). A job gives its program's index in the order of the names.
  job_programs(std::shared_ptr<device::device> device, const std::map<std::string, std::string>& programs);
  ~job_programs();

  /// Runs the job's program, if it names one, and waits for it. Fails if the device is lost: a lost context,
  /// broken hardware. The caller returns the buffer unless the answer contains it.
  result<jobs::device_answer> run(const ready_batch& job);

 private:
  struct program {
    std::string name;
    std::string path;
    std::unique_ptr<JobProgram> loaded{};  // its code stays loaded: unloading gains nothing
  };
  class room_of_job;

  result<JobProgram*> find(std::uint32_t index);
  result<void> enter();
  result<void> call(JobProgram& code, const ready_batch& job, room_of_job& room, const std::string& what);

  std::shared_ptr<device::device> device_;
  std::vector<program> programs_;
  std::optional<stream_handle> stream_;  // none before the first job
  std::byte* memory_ = nullptr;          // result of memory(): as large as the largest request so far
  std::uint64_t memory_bytes_ = 0;
};

/// Refuses (errc::config) a program that is not a readable file, and names it. Runs no code.
result<void> check_programs(const std::map<std::string, std::string>& programs);

}  // namespace penstock::gpu_owner
