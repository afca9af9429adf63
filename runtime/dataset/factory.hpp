// Makes the built-in datasets from a [dataset] table: the session's part, before any worker exists, and the
// worker's part.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"
#include "runtime/dataset/listing/index.hpp"
#include "runtime/dataset/listing/listing.hpp"
#include "runtime/dataset/sampling.hpp"
#include "runtime/dataset/tar/index_cache.hpp"

#include <penstock/config.hpp>
#include <penstock/dataset.hpp>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace penstock {

/// A dataset that has been listed but not loaded.
struct prepared_dataset {
  unique_fd
      index;  ///< for the workers; none (get() < 0) for synthetic and for a mixture, whose parts have one each
  unique_fd
      checked;  ///< checked_files, for the workers of an image folder of which the device decodes; else none
  dataset_description description;
  sampling order;                       ///< set by prepare_stream only
  std::vector<std::string> notices;     ///< for the log
  std::vector<prepared_dataset> parts;  ///< of a mixture; otherwise empty
  bool in_store = false;                ///< its files, or those of a part, are objects behind URLs

  /// What make_dataset needs in a worker: an index for each dataset, -1 for one without; after the only one, `checked`.
  [[nodiscard]] std::vector<int> descriptors() const;
};

/// Lists the files of a dataset, for programs that do not load it. Refuses as prepare_dataset does,
/// and refuses types that have no such list: synthetic; tar and tokens, which have indexes.
result<listing> list_dataset(const config& settings, const listing_progress& progress = {});

/// For the session, once: lists the dataset and seals the index, or finds that of tar shards. `told` is called while
/// an index of shards is built. Refuses what the listings and find_index refuse; errc::config for types that are not
/// built in, among them custom, whose worker program describes itself. `by`: [image] decoder for a session whose device
/// can decode; programs without a device need pixels, and leave it out.
result<prepared_dataset> prepare_dataset(const config& settings,
                                         const std::function<void(const index_progress&)>& told = {},
                                         decoder_rule by = decoder_rule::cpu);

/// prepare_dataset and read_sampling, for callers that need the plan.
result<prepared_dataset> prepare_stream(const config& settings,
                                        const std::function<void(const index_progress&)>& told = {},
                                        decoder_rule by = decoder_rule::cpu);

/// For a program that has prepared a stream before its session does: the next prepare_stream or prepare_dataset of this process
/// with the same dataset and decoder takes a copy of this instead of listing the files again.
void keep_prepared(const config& settings, const prepared_dataset& prepared, decoder_rule by = decoder_rule::cpu);

/// For a worker: the dataset of [dataset] on the index that the session handed over (-1 for synthetic). Does
/// not close the descriptor, which is not needed afterwards. Refuses an index of another type
/// (errc::protocol).
result<std::unique_ptr<Dataset>> make_dataset(const config& settings, int index_fd,
                                              decoder_rule by = decoder_rule::cpu);
/// The same, or the mixture of [[datasets]]: prepared_dataset::descriptors().
result<std::unique_ptr<Dataset>> make_dataset(const config& settings, std::span<const int> index_fds,
                                              decoder_rule by = decoder_rule::cpu);

}  // namespace penstock
