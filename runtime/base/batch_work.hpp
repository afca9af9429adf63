// What a worker of a data loader is doing, as _loading.py describes it: "sample 37", "batch at position 8 of epoch 0", "dataset setup",
// "collate_fn, with the samples [4, 5]". Log, status and stall reports show it.
#pragma once

#include "runtime/base/number.hpp"

#include <fmt/core.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace penstock {

/// The index of the sample that the text names; empty for other work, and for an index that is not a number.
[[nodiscard]] inline std::optional<std::uint64_t> sample_in_work(std::string_view work) {
  constexpr std::string_view start = "sample ";
  if (!work.starts_with(start)) return std::nullopt;
  return whole_number<std::uint64_t>(work.substr(start.size()));
}

/// "loading sample 37", "setting up the dataset", "running collate_fn, with the samples [4, 5]".
[[nodiscard]] inline std::string doing_in_words(std::string_view work) {
  constexpr std::string_view setup = "dataset setup";
  if (work.starts_with(setup)) return fmt::format("setting up the dataset{}", work.substr(setup.size()));
  return fmt::format("{} {}", work.starts_with("collate_fn") ? "running" : "loading", work);
}

/// The work and how long ago the worker began its batch. Used if the time of the sample itself is unknown:
/// "sample 37, in a batch begun 5 s ago".
[[nodiscard]] inline std::string batch_work_since(std::string_view work, std::string_view time) {
  return work.starts_with("batch ") || work == "dataset setup" ? fmt::format("{} for {}", work, time) : fmt::format("{}, in a batch begun {} ago", work, time);
}

}  // namespace penstock
