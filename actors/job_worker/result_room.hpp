// Where the results of a lease's jobs go: into its slot, one behind the other, or, where that has no room left, each into
// a memory file of its own. One thread. Used by the job_runner.
#pragma once

#include "actors/job_worker/private_in_children.hpp"
#include "runtime/arena/job_slot.hpp"
#include "runtime/base/fd.hpp"
#include "runtime/base/mapping.hpp"

#include <penstock/job.hpp>

#include <optional>

namespace penstock::job_worker {

/// Memory that becomes a sealed file. What is written beyond its bytes is noticed: up to 8 bytes by a guard word, more
/// is a SIGSEGV.
class result_file {
 public:
  /// Its pages are there when this returns. Refuses (errc::out_of_memory) when there is no memory or a limit forbids a
  /// file of this size, (errc::system) when the kernel refuses something else. `bytes` > 0.
  static result<result_file> make(std::uint64_t bytes);

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return range_.bytes().first(bytes_); }
  [[nodiscard]] std::uint64_t overrun() const noexcept;
  /// Cuts the file to so many bytes (at most bytes()) and seals it; the memory is gone. Refuses (errc::system) when a
  /// process that user code made keeps it mapped.
  result<unique_fd> seal(std::uint64_t bytes) &&;

 private:
  result_file(unique_fd file, mapping range, std::uint64_t bytes);

  unique_fd file_;
  mapping range_;  // with an inaccessible page behind it
  private_in_children own_;
  std::uint64_t bytes_;
};

class result_room final : public JobCall::room {
 public:
  /// Results begin at `first`.
  result_room(arena::job_slot slot, std::uint64_t first, std::uint64_t elsewhere_max) noexcept
      : slot_(slot), next_(first), elsewhere_max_(elsewhere_max) {}

  // For the function. Both throw penstock::error, as JobCall promises.
  std::span<std::byte> reserve(std::uint64_t bytes) override;
  void shorten(std::uint64_t bytes) override;

  // For the runner.

  /// Before each job: it has no result yet.
  void forget() noexcept;
  /// Asked for more than there is.
  [[nodiscard]] bool refused() const noexcept { return refused_; }
  /// Bytes beyond the room of the result that were seen to be written.
  [[nodiscard]] std::uint64_t overrun() const noexcept;
  [[nodiscard]] std::uint64_t room() const noexcept { return room_; }
  [[nodiscard]] bool lies_elsewhere() const noexcept { return file_.has_value(); }
  [[nodiscard]] std::uint64_t room_in_slot() const noexcept { return slot_.room_from(next_); }
  /// The most that a result may have now: in the slot, or elsewhere.
  [[nodiscard]] std::uint64_t most() const noexcept;

  /// Where the result of a job lies that is over.
  struct place {
    std::uint64_t offset = 0;  ///< in the slot
    std::uint64_t bytes = 0;
    unique_fd file{};  ///< if it lies elsewhere; sealed
  };
  /// The next result begins behind it. Refuses as result_file does.
  result<place> keep();

 private:
  arena::job_slot slot_;
  std::uint64_t next_;
  std::uint64_t elsewhere_max_;
  std::uint64_t room_ = 0;   // that was made for this job's result
  std::uint64_t bytes_ = 0;  // of it that count
  std::optional<result_file> file_;
  bool refused_ = false;
};

}  // namespace penstock::job_worker
