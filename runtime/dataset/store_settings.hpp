// Reads from the config how a dataset uses object storage. Used by the datasets and the tools.
#pragma once

#include "runtime/base/remote_path.hpp"
#include "runtime/storage/object_store.hpp"

#include <penstock/config.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string_view>

namespace penstock {

/// One sample may fetch a range twice: if the expected fetch fails, the read requests it again. Both must end before
/// the worker counts as hung.
inline store_options store_options_of(const config& settings) {
  return {std::min<nanoseconds>(settings.loader.hang.item_timeout * 2 / 5, std::chrono::minutes(1)),
          settings.storage.cache, settings.storage.cache_size.bytes};
}

/// A worker's store for the objects that [dataset] path or its list names; null for files. `first`: the name of
/// the first file. Refuses what object_store refuses.
inline result<std::shared_ptr<object_store>> store_for(const config& settings, std::string_view first) {
  if (!is_url(settings.dataset.path) && !is_url(first)) return std::shared_ptr<object_store>();
  return object_store::open(store_options_of(settings));
}

}  // namespace penstock
