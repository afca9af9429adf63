// The figures of a loader host's connection: what it receives, and what its worker holds and uses. Thread-safe. Used by
// remote_connection.
#pragma once

#include "actors/remote/host_messages.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/worker_look.hpp"

#include <cstdint>
#include <mutex>
#include <optional>

namespace penstock::hosts {

/// What a connection is doing.
struct connection_figures {
  std::uint64_t holds = 0;  ///< batches or jobs leased to the worker that have not arrived
  std::uint64_t resident_bytes = 0;  ///< the worker's memory
  remote_times times;
};

class connection_meter {
 public:
  [[nodiscard]] connection_figures figures() const;
  /// `loading`: how long the worker took to load the arriving batch. figures() assumes that the next one takes as
  /// long.
  void receiving(nanoseconds loading);
  void received();
  void holds(std::uint64_t held);
  void seen(const flight_seen& worker);

 private:
  struct transfer {
    steady_time since{};
    nanoseconds loading{0};  // how long the worker took to load the batch
  };

  mutable std::mutex mutex_;
  connection_figures figures_;
  std::optional<transfer> receives_;
};

}  // namespace penstock::hosts
