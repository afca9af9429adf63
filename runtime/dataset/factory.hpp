// The built-in datasets by name: what the session does with a [dataset] table before any worker exists, and
// what a worker does with it.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"
#include "runtime/dataset/listing/index.hpp"
#include "runtime/dataset/listing/listing.hpp"

#include <penstock/config.hpp>
#include <penstock/dataset.hpp>

#include <memory>
#include <string>
#include <vector>

namespace penstock {

/// A dataset that has been listed but from which nothing was loaded.
struct prepared_dataset {
  unique_fd index;  ///< for the workers; none (get() < 0) for synthetic
  dataset_description description;
  std::vector<std::string> notices;  ///< for the log
};

/// What lies on disk, for programs that look at a dataset without loading it. Refuses as prepare_dataset does,
/// and refuses synthetic, which has no files.
result<listing> list_dataset(const config& settings, const listing_progress& progress = {});

/// For the session, once: lists the dataset and seals the index. Refuses what the listings refuse;
/// errc::config for types that are not built in, among them custom, whose worker program describes itself.
result<prepared_dataset> prepare_dataset(const config& settings, const listing_progress& progress = {});

/// For a worker: the dataset of [dataset] on the index that the session handed over (-1 for synthetic). The
/// descriptor is not closed and not needed any more afterwards. Refuses an index of another type
/// (errc::protocol).
result<std::unique_ptr<Dataset>> make_dataset(const config& settings, int index_fd);

}  // namespace penstock
