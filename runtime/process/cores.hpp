// Lists of cores, in the kernel's format.
#pragma once

#include <sched.h>

#include <string>
#include <string_view>
#include <vector>

namespace penstock::process {

/// "0-3,8" -> 0 1 2 3 8, the kernel's format for lists of cores. Empty if the text is not such a list.
[[nodiscard]] std::vector<int> parse_core_list(std::string_view text);
/// The reverse of parse_core_list.
[[nodiscard]] std::string core_list(const std::vector<int>& cores);

/// The set for sched_setaffinity. Leaves out numbers that are too large for it.
[[nodiscard]] cpu_set_t set_of(const std::vector<int>& cores) noexcept;

/// The cores that this process may use, in order. Empty if the kernel does not tell.
[[nodiscard]] std::vector<int> allowed_cores();

}  // namespace penstock::process
