// A batch of images as a contact sheet. Used by preview and replay.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/dataset/factory.hpp"
#include "runtime/dataset/listing/index.hpp"
#include "tools/penstock/dataset/contact_sheet.hpp"

#include <penstock/batch.hpp>

#include <nlohmann/json.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace penstock::cli {

/// Names of samples, and of classes if the dataset has them.
class sample_names {
 public:
  sample_names(const config& settings, const prepared_dataset& prepared);

  [[nodiscard]] std::string of_class(std::int64_t label) const;
  [[nodiscard]] std::optional<std::string> of_sample(std::uint64_t sample) const;

 private:
  std::unique_ptr<Dataset> dataset_;
  std::optional<index_view> view_;
};

struct batch_picture {
  rgb_picture sheet;
  nlohmann::ordered_json facts;  ///< epoch, seq, and the index, label, class and path of each sample
};

/// Reads the tensor `image` back and undoes its normalisation. `device`: its name, for the title. Refuses a batch
/// without rows (errc::sample) or without images of three channels (errc::dataset).
result<batch_picture> picture_of_batch(const Batch& batch, const config& settings, const sample_names& known,
                                       const std::string& device);

}  // namespace penstock::cli
