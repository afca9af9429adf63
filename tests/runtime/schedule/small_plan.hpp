// A plan small enough to reason about: samples in order, `batch_size` per batch, the same in every epoch.
#pragma once

#include "runtime/schedule/ledger.hpp"

namespace penstock::testing {

class small_plan : public schedule::batch_source {
 public:
  small_plan(std::uint64_t samples, std::uint32_t batch_size) : samples_(samples), batch_size_(batch_size) {}

  [[nodiscard]] std::uint64_t batches() const { return (samples_ + batch_size_ - 1) / batch_size_; }
  [[nodiscard]] std::uint64_t epoch_of(stream_position position) const override {
    return position / batches();
  }
  [[nodiscard]] std::vector<std::uint64_t> samples(stream_position position) const override {
    const std::uint64_t first = position % batches() * batch_size_;
    std::vector<std::uint64_t> list;
    for (std::uint64_t s = first; s < std::min(first + batch_size_, samples_); ++s) list.push_back(s);
    return list;
  }
  [[nodiscard]] std::uint64_t replacement(stream_position position, std::uint32_t row,
                                          std::uint32_t try_number) const override {
    return (position * 31 + row * 7 + try_number * 13) % samples_;
  }

 private:
  std::uint64_t samples_;
  std::uint32_t batch_size_;
};

}  // namespace penstock::testing
