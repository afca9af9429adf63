// The plan as the ledger reads it: positions in the endless stream instead of epochs and batches, and the
// known names of samples. Used by the scheduler actor, on its thread.
#pragma once

#include "actors/protocol/local/scheduler_messages.hpp"
#include "runtime/base/sample_name.hpp"
#include "runtime/dataset/order/plan.hpp"
#include "runtime/schedule/ledger.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::scheduler {

class planned_source final : public schedule::batch_source {
 public:
  explicit planned_source(std::shared_ptr<const plan> order) : order_(std::move(order)) {}

  void use(std::shared_ptr<const plan> order) { order_ = std::move(order); }

  [[nodiscard]] std::uint64_t epoch_of(stream_position position) const override {
    return position / batches();
  }
  [[nodiscard]] std::uint64_t sequence_of(stream_position position) const { return position % batches(); }
  [[nodiscard]] std::vector<std::uint64_t> samples(stream_position position) const override {
    return order_->batch(epoch_of(position), sequence_of(position));
  }
  [[nodiscard]] std::uint64_t replacement(stream_position position, std::uint32_t row,
                                          std::uint32_t try_number) const override {
    const std::uint64_t epoch = epoch_of(position);
    return order_->replacement(epoch, order_->position(epoch, sequence_of(position), row), try_number);
  }
  [[nodiscard]] std::string describe(std::uint64_t sample) const override {
    const auto name = names_.find(sample);
    return sample_for_people(sample, name == names_.end() ? std::string_view() : name->second);
  }
  void name(std::uint64_t sample, std::string name) { names_[sample] = std::move(name); }
  /// Leaves reason, attempts and causes empty.
  [[nodiscard]] lost_sample lost(stream_position position, std::uint64_t sample) const {
    const auto name = names_.find(sample);
    return {epoch_of(position),
            sequence_of(position),
            sample,
            name == names_.end() ? std::string() : name->second,
            {},
            0,
            {}};
  }

 private:
  [[nodiscard]] std::uint64_t batches() const {
    return std::max<std::uint64_t>(order_->batches_per_epoch(), 1);
  }

  std::shared_ptr<const plan> order_;
  std::map<std::uint64_t, std::string> names_;  // names of bad samples, for messages
};

}  // namespace penstock::scheduler
