// How a dataset reads from object storage, from the config. Used by the datasets and the tools.
#pragma once

#include "runtime/storage/object_store.hpp"

#include <penstock/config.hpp>

#include <algorithm>
#include <chrono>

namespace penstock {

/// A range may be fetched twice for one sample, when it was expected and failed: both must end before the worker counts as
/// hung.
inline store_options store_options_of(const config& settings) {
  return {std::min<nanoseconds>(settings.loader.hang.item_timeout * 2 / 5, std::chrono::minutes(1)),
          settings.storage.cache, settings.storage.cache_size.bytes};
}

}  // namespace penstock
