// A session that loads batches of a run again. Used by `penstock replay`.
#pragma once

#include "runtime/schedule/epoch_book.hpp"
#include "tools/penstock/dataset/planned_stream.hpp"

#include <penstock/session.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace penstock::cli {

/// Loads consecutive batches as the run did, and hands them to this program. They may span epochs.
class replayed_stream {
 public:
  /// `last_epoch`: the epoch of the last batch. The constructor and the members throw error.
  replayed_stream(config settings, const planned_batch& first, std::uint64_t batches, std::uint64_t last_epoch)
      : begin_(schedule::serialise(first.before)),
        session_(within(std::move(settings), last_epoch, batches), options_of(begin_, batches)) {}

  std::optional<Batch> next() { return session_.next(); }
  [[nodiscard]] std::string device() const { return session_.status().gpu.name; }

 private:
  static config within(config settings, std::uint64_t last_epoch, std::uint64_t batches) {
    settings.metrics.listen.clear();
    if (batches == 1) settings.loader.workers = 1;
    settings.loader.limits.min = 1;
    settings.gpu.placement = placement_rule::embedded;
    settings.scheduler.order = order_rule::strict;
    settings.group.communicator = communicator_kind::none;
    // A run may have had more epochs (--epochs) than the file says.
    settings.sampler.epochs = std::max(settings.sampler.epochs, last_epoch + 1);
    return settings;
  }
  static session_options options_of(const std::vector<std::byte>& begin, std::uint64_t batches) {
    session_options options;
    options.control_socket = false;
    options.batches = batches;
    options.state = begin;
    return options;
  }

  std::vector<std::byte> begin_;
  Session session_;
};

}  // namespace penstock::cli
