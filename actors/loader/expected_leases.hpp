// Leases that the io thread has received and the loader actor has not begun: announces them to the dataset, and keeps urgent ones,
// which the actor takes before those in its mailbox. Thread-safe.
#pragma once

#include "actors/protocol/messages.hpp"

#include <penstock/dataset.hpp>

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>

namespace penstock::loader {

class expected_leases {
 public:
  // Called on the io thread.
  void announce(const protocol::load_batch& lease);
  /// Keeps an urgent lease. Send a wake_up afterwards.
  void add_urgent(protocol::load_batch lease);
  void drop(const protocol::drop_batch& lease);
  // Called by the actor.
  /// The first urgent lease; empty if there is none.
  [[nodiscard]] std::optional<protocol::load_batch> take_urgent();
  /// Whether the lease's result is no longer needed.
  [[nodiscard]] bool is_dropped(const protocol::load_batch& lease);
  /// With null, leases are no longer announced, and the previous dataset may be destroyed.
  void set_dataset(Dataset* dataset);

 private:
  std::mutex mutex_;  ///< guards `dataset_`, even during its expect()
  Dataset* dataset_ = nullptr;
  std::mutex orders_;  ///< guards the rest: the actor locks it for each sample, and must not wait for Dataset::expect
  std::deque<protocol::load_batch> urgent_;
  std::map<std::uint32_t, std::uint32_t> dropped_;  // the last dropped generation of each slot
};

}  // namespace penstock::loader
