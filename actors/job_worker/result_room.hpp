// Memory for the results of a lease's jobs: one after another in its slot; once the slot is full, each in its
// own memory file. Not thread-safe. Used by the job_runner.
#pragma once

#include "actors/job_worker/private_in_children.hpp"
#include "runtime/arena/job_slot.hpp"
#include "runtime/base/fd.hpp"
#include "runtime/base/mapping.hpp"

#include <penstock/job.hpp>

#include <optional>

namespace penstock::job_worker {

/// Memory that becomes a sealed file. Detects writes past the end: up to 8 bytes by a guard word, more by a
/// SIGSEGV.
class result_file {
 public:
  /// Allocates all pages before returning. Fails with errc::out_of_memory if there is no memory or a limit
  /// forbids a file of this size, and with errc::system for any other error of the kernel. `bytes` > 0.
  static result<result_file> make(std::uint64_t bytes);

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return range_.bytes().first(bytes_); }
  [[nodiscard]] std::uint64_t overrun() const noexcept;
  /// Truncates the file to `bytes` (at most bytes()), unmaps and seals it. Fails (errc::system) if a process
  /// started by user code keeps it mapped.
  result<unique_fd> seal(std::uint64_t bytes) &&;

 private:
  result_file(unique_fd file, mapping range, std::uint64_t bytes);

  unique_fd file_;
  mapping range_;  // followed by an inaccessible page
  private_in_children own_;
  std::uint64_t bytes_;
};

class result_room final : public JobCall::room {
 public:
  /// Results begin at `first`.
  result_room(arena::job_slot slot, std::uint64_t first, std::uint64_t elsewhere_max) noexcept
      : slot_(slot), next_(first), elsewhere_max_(elsewhere_max) {}

  // The function calls these. Both throw penstock::error, as documented for JobCall.
  std::span<std::byte> reserve(std::uint64_t bytes) override;
  void shorten(std::uint64_t bytes) override;

  // The runner calls these.

  /// Call before each job: discards the previous job's result.
  void forget() noexcept;
  /// Whether the function asked for more than most().
  [[nodiscard]] bool refused() const noexcept { return refused_; }
  /// Bytes known to have been written past the end of the result.
  [[nodiscard]] std::uint64_t overrun() const noexcept;
  [[nodiscard]] std::uint64_t room() const noexcept { return room_; }
  [[nodiscard]] bool lies_elsewhere() const noexcept { return file_.has_value(); }
  [[nodiscard]] std::uint64_t room_in_slot() const noexcept { return slot_.room_from(next_); }
  /// The largest result possible now, in the slot or elsewhere.
  [[nodiscard]] std::uint64_t most() const noexcept;

  /// Where the result of a finished job is.
  struct place {
    std::uint64_t offset = 0;  ///< within the slot
    std::uint64_t bytes = 0;
    unique_fd file{};  ///< the sealed file, if the result is not in the slot
  };
  /// Keeps the result; the next one starts after it. Fails like result_file.
  result<place> keep();

 private:
  arena::job_slot slot_;
  std::uint64_t next_;
  std::uint64_t elsewhere_max_;
  std::uint64_t room_ = 0;   // reserved for this job's result
  std::uint64_t bytes_ = 0;  // used by the result
  std::optional<result_file> file_;
  bool refused_ = false;
};

}  // namespace penstock::job_worker
