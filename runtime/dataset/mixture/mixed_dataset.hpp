// A mixture in a worker: passes each sample on to its dataset. Used by factory.
#pragma once

#include <penstock/dataset.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace penstock {

class mixed_dataset final : public Dataset {
 public:
  struct part {
    std::string name;
    std::unique_ptr<Dataset> dataset;
    std::uint64_t samples = 0;
  };
  /// `description`: from describe_mixture, of these parts in this order.
  mixed_dataset(std::vector<part> parts, dataset_description description);

  dataset_description describe() override { return description_; }
  void setup(const worker_context& context) override;
  void expect(std::span<const std::uint64_t> samples) override;
  void load(const sample_request& request, const sample_slot& slot) override;
  [[nodiscard]] std::string name_of(std::uint64_t index) const override;

 private:
  struct place {
    std::size_t part = 0;
    std::uint64_t sample = 0;
  };
  [[nodiscard]] place place_of(std::uint64_t index) const;

  std::vector<part> parts_;
  std::vector<std::uint64_t> ends_;  // running total of the parts' samples
  dataset_description description_;
};

}  // namespace penstock
