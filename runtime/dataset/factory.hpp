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
      index;  ///< for the workers; get() < 0 for synthetic, and for a mixture, whose parts have one each
  unique_fd
      checked;  ///< checked_files, for an image folder that the device decodes; otherwise none
  dataset_description description;
  sampling order;                       ///< set by prepare_stream only
  std::vector<std::string> notices;     ///< for the log
  std::vector<prepared_dataset> parts;  ///< the datasets of a mixture; otherwise empty
  bool in_store = false;                ///< whether its files, or those of one of its parts, are objects behind URLs

  /// The descriptors that make_dataset needs in a worker: an index for each dataset, -1 for one without; if there is
  /// only one dataset, `checked` may follow.
  [[nodiscard]] std::vector<int> descriptors() const;
  /// The descriptors that exist, in the order of the datasets.
  [[nodiscard]] std::vector<int> indexes() const;
};

/// Lists the files of a dataset, for programs that do not load it. Refuses what prepare_dataset refuses, and types
/// without such a list: synthetic, and tar and tokens, which have indexes.
result<listing> list_dataset(const config& settings, const listing_progress& progress = {});

/// For the session, once: lists the dataset and seals the index; for tar shards, finds or builds the index, and calls
/// `told` while building it. Refuses what the listings and find_index refuse, and (errc::config) types that are not
/// built in, such as custom, which only the worker program can describe. `by`: [image] decoder, for a session whose
/// device can decode. Programs without a device need pixels and omit it.
result<prepared_dataset> prepare_dataset(const config& settings,
                                         const std::function<void(const index_progress&)>& told = {},
                                         decoder_rule by = decoder_rule::cpu);

/// Calls prepare_dataset and read_sampling, for callers that need the plan. `made`: the indexes() of another process
/// with the same datasets. The datasets are then not listed again, and there are no notices about their files.
result<prepared_dataset> prepare_stream(const config& settings,
                                        const std::function<void(const index_progress&)>& told = {},
                                        decoder_rule by = decoder_rule::cpu, std::vector<unique_fd> made = {});

/// For programs that prepare a stream before they start the session. In this process, the next prepare_stream or
/// prepare_dataset with the same dataset and decoder takes a copy of `prepared` instead of listing the files again.
void keep_prepared(const config& settings, const prepared_dataset& prepared, decoder_rule by = decoder_rule::cpu);

/// For a worker: makes the dataset of [dataset] from the index that the session handed over (-1 for synthetic). Does
/// not close the descriptor; the caller may close it afterwards. Refuses an index of a different type (errc::protocol).
result<std::unique_ptr<Dataset>> make_dataset(const config& settings, int index_fd,
                                              decoder_rule by = decoder_rule::cpu);
/// Makes the dataset of [dataset], or the mixture of [[datasets]]. `descriptors`: from prepared_dataset::descriptors().
result<std::unique_ptr<Dataset>> make_dataset(const config& settings, std::span<const int> index_fds,
                                              decoder_rule by = decoder_rule::cpu);

}  // namespace penstock
