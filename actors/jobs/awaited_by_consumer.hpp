// The batch that the consumer of a data loader waits for, as the program reports it. Thread-safe: the consumer's thread writes, the io
// thread reads.
#pragma once

#include "runtime/supervision/awaited.hpp"

#include <penstock/pool.hpp>

#include <mutex>
#include <optional>

namespace penstock::jobs {

class awaited_by_consumer {
 public:
  /// Returns true if the wait begins with this call.
  bool wait(std::uint64_t job, batch_mark doing, steady_time now);
  /// Ends the wait. Returns false if there was none.
  bool came();
  [[nodiscard]] std::optional<supervision::awaited_batch> now() const;
  /// Returns the report. If the worker hung on the awaited batch, the report names the sample instead of the
  /// batch.
  [[nodiscard]] death_report named(death_report death) const;

 private:
  mutable std::mutex mutex_;
  std::optional<supervision::awaited_batch> batch_;
};

}  // namespace penstock::jobs
