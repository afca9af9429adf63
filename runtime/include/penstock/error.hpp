// The one type of all failures. Inside penstock a failure is a value (base/result.hpp); the public API throws it
// as penstock::error. Used everywhere.
#pragma once

#include <penstock/export.hpp>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace penstock {

/// The kind of a failure, for programs to branch on. The message has the details.
enum class errc : std::uint8_t {
  config,                ///< a config file, key or value is wrong
  usage,                 ///< the program misused the API, and must be fixed
  io,                    ///< a file or folder could not be read or written
  dataset,               ///< the dataset as a whole is unusable: missing, empty, of a wrong shape
  sample,                ///< one sample failed and the policy is on_bad_sample = "fail"
  out_of_memory,         ///< host memory, a cgroup limit or a resource limit is too small
  system,                ///< the operating system refused something else
  worker_program,        ///< the worker program is missing, not executable, or broken
  workers_exhausted,     ///< restarts did not help: no loader worker is left, or there were too few for too long
  protocol,              ///< a peer uses a different protocol version or violates the protocol
  quarantine_full,       ///< too many samples kill workers: the cause must be systematic
  device_unavailable,    ///< the device or its driver is missing, or the device cannot be used
  device_out_of_memory,  ///< the device's memory is too small for this request; the device stays usable
  device_busy,           ///< another session or process holds the device exclusively
  device_poisoned,       ///< a sticky device error: this process can never use the device again
  device_hardware,       ///< the device reports broken hardware
  device_image,          ///< no kernel image for this device's architecture
  state_mismatch,        ///< a saved state belongs to another dataset, seed, batch size or rank layout
  sink,                  ///< the consumer of batches failed
  stopped,               ///< the session was stopped
  timed_out,             ///< a deadline passed
  job_failed,            ///< a job of a pool ended without a result: see job_error
  group_failed,          ///< the group of ranks has failed: the message names the rank and the reason
};

/// The name of a kind in JSON: "config", "out_of_memory", ...
PENSTOCK_API const char* name_of(errc code) noexcept;

/// A failure: its kind, a message with the figures, and the errno or CUDA code that caused it (0: none).
struct failure {
  errc code = errc::system;
  std::string message;
  int os_code = 0;
};

/// What the public API throws. what() is the message of the failure.
class PENSTOCK_API error : public std::runtime_error {
 public:
  explicit error(penstock::failure what) : std::runtime_error(what.message), failure_(std::move(what)) {}
  ~error() override;

  [[nodiscard]] errc code() const noexcept { return failure_.code; }
  [[nodiscard]] int os_code() const noexcept { return failure_.os_code; }
  [[nodiscard]] const penstock::failure& as_failure() const noexcept { return failure_; }

 private:
  penstock::failure failure_;
};

}  // namespace penstock
