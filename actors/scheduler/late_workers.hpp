// Which workers are late with a sample, from their flight recorders ([loader] hedge). Used by the scheduler actor, on its
// thread.
#pragma once

#include "runtime/arena/flight_recorder.hpp"
#include "runtime/schedule/late_reads.hpp"
#include "runtime/schedule/ledger.hpp"

#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace penstock::scheduler {

class late_workers {
 public:
  /// False without them: there are no hedges.
  bool watch(std::shared_ptr<const arena::flight_recorders> flights) {
    flights_ = std::move(flights);
    return flights_ != nullptr;
  }

  void note(const std::vector<std::uint32_t>& sample_us) noexcept { reads_.note(sample_us); }
  /// `Workers`: a map by number. Only while watching.
  template <class Workers>
  [[nodiscard]] std::set<std::uint32_t> find(const Workers& workers, const schedule::ledger& books, steady_time now) const {
    std::vector<schedule::read_under_way> reads;
    for (const auto& [index, worker] : workers) {
      if (books.leases_of(index) == 0) continue;
      const arena::flight_reading flight = flights_->read(index);
      if (flight.state.at == arena::phase::loading) reads.push_back({index, flight.since});
    }
    return reads_.late(reads, now);
  }
  [[nodiscard]] nanoseconds pause() const noexcept { return reads_.pause(); }

 private:
  std::shared_ptr<const arena::flight_recorders> flights_;
  schedule::late_reads reads_;
};

}  // namespace penstock::scheduler
