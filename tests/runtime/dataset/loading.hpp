// Loads single samples of a dataset in tests, as a worker would.
#pragma once

#include "tests/runtime/dataset/fixtures.hpp"

#include <penstock/dataset.hpp>
#include <penstock/error.hpp>

#include <string>
#include <vector>

namespace penstock::testing {

/// Memory for one sample, guarded on both sides.
class sample_memory {
 public:
  explicit sample_memory(const dataset_description& described) {
    constexpr std::size_t guard = 64;
    for (const tensor_spec& spec : described.tensors) {
      memory_.emplace_back(bytes_of(spec) + 2 * guard, std::byte{0xa5});
      spans_.push_back(std::span(memory_.back()).subspan(guard, bytes_of(spec)));
    }
  }
  [[nodiscard]] sample_slot slot() const { return sample_slot(spans_); }
  [[nodiscard]] bytes tensor(std::size_t i) const { return {spans_[i].begin(), spans_[i].end()}; }
  [[nodiscard]] bool guards_intact() const {
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      for (std::size_t k = 0; k < 64; ++k) {
        if (memory_[i][k] != std::byte{0xa5} || memory_[i][memory_[i].size() - 1 - k] != std::byte{0xa5})
          return false;
      }
    }
    return true;
  }

 private:
  std::vector<bytes> memory_;
  std::vector<std::span<std::byte>> spans_;
};

struct request_options {
  std::uint64_t seed = 1;
  std::uint64_t epoch = 0;
  std::uint32_t attempt = 1;
};

/// Loads into `memory`; throws what the dataset throws.
inline void load_into(Dataset& dataset, std::uint64_t index, sample_memory& memory,
                      const request_options& options = {}) {
  random_source random(options.seed, options.epoch, index);
  dataset.load({index, options.epoch, options.attempt, random}, memory.slot());
}

/// The first tensor of a sample.
inline bytes load_one(Dataset& dataset, std::uint64_t index, const request_options& options = {}) {
  sample_memory memory(dataset.describe());
  load_into(dataset, index, memory, options);
  return memory.guards_intact() ? memory.tensor(0) : as_bytes("wrote outside its slot");
}

/// The error message of a sample; empty if it loads.
inline std::string load_error(Dataset& dataset, std::uint64_t index) {
  try {
    load_one(dataset, index);
    return {};
  } catch (const error& e) {
    return e.what();
  }
}

}  // namespace penstock::testing
