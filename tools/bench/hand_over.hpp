// The baseline for a pool of jobs with large arguments and results: the two copies alone (bare_copies), and
// the two copies by two processes with nothing but a futex between them (handed_over_per_second). Used by
// jobs.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace penstock::bench {

inline constexpr std::size_t copied_bytes = 1'000'000;

using copied_arguments = std::vector<std::shared_ptr<std::vector<std::byte>>>;
/// 256 different arguments, more than caches hold, because real jobs do not repeat the same megabyte.
[[nodiscard]] copied_arguments make_arguments();

/// One thread per worker, each with one buffer per slot of a worker, used in turn: the same memory as a pool
/// uses. The buffers are written once before timing starts. Their pages have the same size as those of slots,
/// unless the system gives huge pages to only one of the two (/sys/kernel/mm/transparent_hugepage: enabled,
/// shmem_enabled).
class bare_copies {
 public:
  bare_copies(std::uint32_t threads, std::uint32_t buffers_each);
  /// Copies each argument to the first half of a buffer, and from there to the second half.
  double jobs_per_second(const copied_arguments& arguments, std::uint64_t jobs);

 private:
  std::vector<std::vector<std::vector<std::byte>>> buffers_;  // by thread
};

enum class placement : std::uint8_t {
  free,        ///< the system chooses the cores
  same_core,   ///< the two processes of a pair take turns on one core
  other_core,  ///< the two processes of a pair run on different cores
};
inline constexpr std::array placements{placement::free, placement::same_core, placement::other_core};
[[nodiscard]] const char* name_of(placement where) noexcept;

struct hand_over_settings {
  std::uint32_t pairs = 2;
  std::uint32_t slots_each = 3;
  std::uint64_t jobs = 4000;
  placement where = placement::free;
  bool streaming = false;  ///< the first copy bypasses the caches, as in a pool
};
/// Each pair is a thread of this process that copies arguments into slots of shared memory, and a child that copies each
/// within its slot. Forks, so no other thread may be running.
double handed_over_per_second(const copied_arguments& arguments, const hand_over_settings& s);

/// How long a cache line takes from one core to another. This changes when the hypervisor moves a virtual machine to other cores.
double nanoseconds_between_cores();

}  // namespace penstock::bench
