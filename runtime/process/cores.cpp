#include "runtime/process/cores.hpp"

#include <fmt/core.h>

#include <charconv>
#include <optional>

namespace penstock::process {
namespace {

constexpr int core_max = 1 << 16;

/// Removes a core's number from the front of the text.
std::optional<int> take_core(std::string_view& text) {
  int core = 0;
  const auto [rest, fault] = std::from_chars(text.data(), text.data() + text.size(), core);
  if (fault != std::errc() || core < 0 || core > core_max) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  return core;
}

bool take(std::string_view& text, char wanted) {
  if (!text.starts_with(wanted)) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

std::vector<int> parse_core_list(std::string_view text) {
  while (text.ends_with('\n') || text.ends_with(' ')) text.remove_suffix(1);
  std::vector<int> cores;
  while (!text.empty()) {
    const auto first = take_core(text);
    const auto last = take(text, '-') ? take_core(text) : first;
    if (!first || !last || *last < *first) return {};
    for (int core = *first; core <= *last; ++core) cores.push_back(core);
    if (!text.empty() && (!take(text, ',') || text.empty())) return {};
  }
  return cores;
}

std::string core_list(const std::vector<int>& cores) {
  std::string text;
  for (std::size_t i = 0; i < cores.size();) {
    std::size_t last = i;
    while (last + 1 < cores.size() && cores[last + 1] == cores[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", cores[i]);
    if (last > i) text += fmt::format("-{}", cores[last]);
    i = last + 1;
  }
  return text;
}

cpu_set_t set_of(const std::vector<int>& cores) noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) {
    if (core >= 0 && core < CPU_SETSIZE) CPU_SET(static_cast<unsigned>(core), &set);
  }
  return set;
}

std::vector<int> allowed_cores() {
  cpu_set_t set;
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<unsigned>(core), &set)) cores.push_back(core);
  }
  return cores;
}

}  // namespace penstock::process
