// Checks that there is enough memory before the arena is reserved: otherwise the run would end in an OOM
// kill, a SIGBUS or a SIGXFSZ instead of a clear message. Reads /proc and the cgroup files; tests can replace
// the roots.
#pragma once

#include "runtime/base/result.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace penstock::arena {

struct memory_need {
  std::uint64_t reserved_bytes = 0;  ///< pages that will actually be used
  std::uint64_t file_bytes = 0;      ///< size of the arena's file, holes included
  std::uint64_t mapped_bytes = 0;    ///< address space in this process
  std::string explanation;           ///< how the number is computed: "4 workers x 3 slots x 18.4 MiB"
  std::string remedy;                ///< what the user can lower
};

/// An upper bound on memory, and its source.
struct memory_limit {
  std::string who;              ///< where the bound comes from: "available memory", "memory cgroup /sys/fs/cgroup/a/b"
  std::uint64_t available = 0;  ///< bytes that can still be allocated
  std::optional<std::uint64_t> total;
};

/// MemAvailable and every memory cgroup above this process (v1 and v2). Files that cannot be read set no
/// limit. Reclaimable file cache counts as available.
[[nodiscard]] std::vector<memory_limit> memory_limits(const std::filesystem::path& root = "/");

/// Compares a need with the limits and with RLIMIT_FSIZE and RLIMIT_AS. Refuses with errc::out_of_memory,
/// naming the tightest limit, both numbers and the remedy.
result<void> check_memory(const memory_need& need, const std::vector<memory_limit>& limits);

}  // namespace penstock::arena
