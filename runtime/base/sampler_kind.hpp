// The names of the orders of samples. Used by the config and by the manifest of --sink npy.
#pragma once

#include <penstock/config.hpp>

#include <string_view>

namespace penstock {

/// The spelling in [sampler] kind; empty for a value that is not an enumerator.
[[nodiscard]] constexpr std::string_view name_of(sampler_kind kind) noexcept {
  switch (kind) {
    case sampler_kind::shuffle: return "shuffle";
    case sampler_kind::sequential: return "sequential";
    case sampler_kind::weighted: return "weighted";
    case sampler_kind::balanced: return "balanced";
    case sampler_kind::subset: return "subset";
    case sampler_kind::window: return "window";
  }
  return {};
}

}  // namespace penstock
