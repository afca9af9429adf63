// The batches of a run by their positions, from its config and dataset alone. Used by plan and replay.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/dataset/factory.hpp"
#include "runtime/dataset/order/plan.hpp"
#include "runtime/schedule/epoch_book.hpp"
#include "tools/penstock/config_source.hpp"
#include "tools/penstock/dataset/epoch_extent.hpp"
#include "tools/penstock/output.hpp"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock::cli {

/// The options that both verbs have.
struct place_options {
  config_source source;
  std::uint64_t epoch = 0;
  std::uint64_t batch = 0;
  std::optional<std::uint32_t> rank;
  std::optional<std::uint32_t> world;
  bool as_json = false;
};
void add_place_options(CLI::App& verb, place_options& o);

/// Calls `act` with the settings for the requested rank, after printing warnings and a progress bar.
int with_settings(const place_options& o, const std::function<int(const config&)>& act);

struct planned_batch {
  std::vector<std::uint64_t> samples;
  schedule::stream_state before;  ///< the stream's state when everything before this batch is delivered
};

/// Like prepare_stream, but asks the worker program ([loader] command) about a custom dataset: starts one worker and kills it afterwards.
/// Blocks for up to [loader.hang] start_deadline for each answer.
result<prepared_dataset> prepare_by_worker(const config& settings);

class sample_namer;

/// For a custom dataset, a planned_stream keeps the worker that described the dataset until it is destroyed.
class planned_stream {
 public:
  /// `saved`: a state of the run, or none. It contains the run's quarantined samples, and the position at which a group of a different size
  /// entered an epoch.
  static result<planned_stream> create(const config& settings,
                                       const std::optional<schedule::stream_state>& saved);

  /// Refuses (errc::usage) a batch that its epoch does not have.
  [[nodiscard]] result<planned_batch> batch(std::uint64_t epoch, std::uint64_t batch) const;
  [[nodiscard]] epoch_extent batches_of(std::uint64_t epoch) const;
  /// For a custom dataset, asks its worker, which first sets up the dataset; "sample 7" if the worker gives no name,
  /// and for a sample that the dataset no longer has. Blocks
  /// for up to [loader.hang] start_deadline for each answer.
  [[nodiscard]] std::vector<std::string> names_of(std::span<const std::uint64_t> samples) const;
  [[nodiscard]] std::string name_of(std::uint64_t sample) const;
  [[nodiscard]] const prepared_dataset& prepared() const noexcept { return prepared_; }

 private:
  planned_stream(prepared_dataset prepared, plan order, std::unique_ptr<Dataset> dataset, std::shared_ptr<sample_namer> custom)
      : prepared_(std::move(prepared)), order_(std::move(order)), dataset_(std::move(dataset)), custom_(std::move(custom)) {}

  prepared_dataset prepared_;
  plan order_;
  std::unique_ptr<Dataset> dataset_;  ///< null for a custom dataset
  std::shared_ptr<sample_namer> custom_;
  schedule::stream_state begin_;
};

[[nodiscard]] exit_code code_of(const failure& why);
/// `names`: the names of the batch's samples.
[[nodiscard]] nlohmann::ordered_json facts_of(const place_options& o, const config& settings, const planned_batch& batch,
                                              const std::vector<std::string>& names);
void list_samples(const planned_batch& batch, const std::vector<std::string>& names);

}  // namespace penstock::cli
