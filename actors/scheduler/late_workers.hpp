// Finds the batches that a second worker should load too: those of workers that are late with a sample, according to their
// flight recorders ([loader] hedge), and those that the stream awaits from workers on other machines (rule H12). Used by the
// scheduler actor, on its thread.
#pragma once

#include "runtime/arena/flight_recorder.hpp"
#include "runtime/schedule/late_batches.hpp"
#include "runtime/schedule/late_reads.hpp"
#include "runtime/schedule/ledger.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace penstock::scheduler {

class late_workers {
 public:
  /// `flights`: null without [loader] hedge. `first_remote`: the first place on another machine, if there is one. Returns
  /// false if no batch will ever count as late.
  bool watch(std::shared_ptr<const arena::flight_recorders> flights, std::optional<std::uint32_t> first_remote) {
    flights_ = std::move(flights);
    first_remote_ = first_remote;
    return flights_ != nullptr || first_remote_;
  }

  void leased(const schedule::load_command& load, steady_time now) {
    if (first_remote_ && !load.hedge) batches_.leased(load.position, now);
  }
  /// `position`: empty if the report belongs to no batch.
  void loaded(std::optional<stream_position> position, const std::vector<std::uint32_t>& sample_us, steady_time now) {
    reads_.note(sample_us);
    if (position) batches_.loaded(*position, now);
  }
  /// For a seek.
  void forget() { batches_.forget(); }

  /// `Workers`: a map whose keys are the workers' numbers.
  template <class Workers>
  void look(const Workers& workers, schedule::ledger& books, steady_time now) {
    if (flights_) books.hedge(find(workers, books, now));
    const auto head = first_remote_ ? books.head() : std::nullopt;
    if (head && head->worker >= *first_remote_ && batches_.is_late(head->position, now)) books.hedge_head();
  }
  [[nodiscard]] nanoseconds pause() const noexcept { return std::min(reads_.pause(), batches_.pause()); }

 private:
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

  std::shared_ptr<const arena::flight_recorders> flights_;
  std::optional<std::uint32_t> first_remote_;
  schedule::late_reads reads_;
  schedule::late_batches batches_;
};

}  // namespace penstock::scheduler
