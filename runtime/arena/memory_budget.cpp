#include "runtime/arena/memory_budget.hpp"

#include "runtime/base/cgroups.hpp"
#include "runtime/base/file_text.hpp"
#include "runtime/base/number.hpp"
#include "runtime/base/units.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <sstream>

namespace penstock::arena {
namespace {

namespace fs = std::filesystem;

std::optional<std::uint64_t> number_in(const fs::path& file) {
  const std::string text = text_of_file(file);
  return whole_number<std::uint64_t>(std::string_view(text).substr(0, text.find('\n')));  // "max" is not a number, and means no limit
}

/// The value after `key` in a file of "key value" lines, times `scale` (/proc/meminfo counts in kB).
std::optional<std::uint64_t> field(const std::string& text, std::string_view key, std::uint64_t scale = 1) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key)) continue;
    std::istringstream rest(line.substr(key.size()));
    std::uint64_t value = 0;
    if (rest >> value) return value * scale;
  }
  return std::nullopt;
}

struct cgroup_files {
  const char* limit;
  const char* used;
  const char* cache_key;  // key in memory.stat of the cache that the kernel reclaims first
};
constexpr cgroup_files v2{"memory.max", "memory.current", "inactive_file "};
constexpr cgroup_files v1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "};

// v1 expresses "no limit" as a number near 2^63.
constexpr std::uint64_t no_limit_from = std::uint64_t{1} << 60;

void add_cgroup_limits(std::vector<memory_limit>& limits, const fs::path& root) {
  for (const cgroup_folder& group : cgroup_folders(root, "memory")) {
    const cgroup_files& files = group.v2 ? v2 : v1;
    const auto limit = number_in(group.path / files.limit);
    if (!limit || *limit >= no_limit_from) continue;
    const std::uint64_t used = number_in(group.path / files.used).value_or(0);
    const std::uint64_t cache = field(text_of_file(group.path / "memory.stat"), files.cache_key).value_or(0);
    const std::uint64_t busy = used - std::min(used, cache);
    limits.push_back({"memory cgroup " + group.path.string(), *limit - std::min(*limit, busy), *limit});
  }
}

std::uint64_t address_space_used(const fs::path& root) {
  std::istringstream text(text_of_file(root / "proc/self/statm"));
  std::uint64_t pages = 0;
  text >> pages;
  return pages * 4096;
}

}  // namespace

std::vector<memory_limit> memory_limits(const fs::path& root) {
  std::vector<memory_limit> limits;
  const std::string memory = text_of_file(root / "proc/meminfo");
  if (const auto available = field(memory, "MemAvailable:", KiB)) {
    limits.push_back({"available memory", *available, field(memory, "MemTotal:", KiB)});
  }
  add_cgroup_limits(limits, root);
  return limits;
}

result<void> check_memory(const memory_need& need, const std::vector<memory_limit>& limits) {
  const auto tightest = std::ranges::min_element(limits, {}, &memory_limit::available);
  if (tightest != limits.end() && need.reserved_bytes > tightest->available) {
    const std::string total =
        tightest->total ? fmt::format(" of {}", bytes_for_people(*tightest->total)) : "";
    return refuse(errc::out_of_memory, "the arena needs {} ({}), but {} leaves {}{}; {}",
                  bytes_for_people(need.reserved_bytes), need.explanation, tightest->who,
                  bytes_for_people(tightest->available), total, need.remedy);
  }
  rlimit bound{};
  if (::getrlimit(RLIMIT_FSIZE, &bound) == 0 && bound.rlim_cur != RLIM_INFINITY &&
      need.file_bytes > bound.rlim_cur) {
    return refuse(errc::out_of_memory,
                  "the arena's file needs {} ({}), but the limit on file sizes (ulimit -f) is {}; {}",
                  bytes_for_people(need.file_bytes), need.explanation, bytes_for_people(bound.rlim_cur),
                  need.remedy);
  }
  if (::getrlimit(RLIMIT_AS, &bound) == 0 && bound.rlim_cur != RLIM_INFINITY) {
    const std::uint64_t used = address_space_used("/");
    if (used + need.mapped_bytes > bound.rlim_cur) {
      return refuse(errc::out_of_memory,
                    "mapping the arena needs {} of address space ({}), but {} are in use and the limit "
                    "(ulimit -v) is {}; {}",
                    bytes_for_people(need.mapped_bytes), need.explanation, bytes_for_people(used),
                    bytes_for_people(bound.rlim_cur), need.remedy);
    }
  }
  return {};
}

}  // namespace penstock::arena
