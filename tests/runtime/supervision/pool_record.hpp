// Checks the behaviour of a pool against an independent record of operators' orders, deaths and places that were given up. Used by the
// model test of pool and ledger.
#pragma once

#include "runtime/supervision/pool.hpp"
#include "tests/runtime/schedule/random_scripts.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace penstock::testing {

inline constexpr std::uint32_t workers_max = 8;
inline constexpr std::uint32_t sacrificial_place = workers_max;

/// The actual state of a process.
struct living_process {
  bool ready = false;
  bool wedged = false;  ///< the process survives SIGKILL
};
using living_processes = std::map<std::uint32_t, living_process>;  // by place

class pool_record {
 public:
  pool_record(std::uint32_t workers, std::uint32_t intensity, restart_type type)
      : intensity_(intensity), type_(type) {
    for (std::uint32_t w = 0; w < workers_max; ++w) wanted_[w] = w < workers;
  }

  // ---- what happened

  void scaled(std::uint32_t workers) {
    for (std::uint32_t w = 0; w < workers_max; ++w) {
      if (w >= workers || !belongs(w)) counted_[w].clear();
      wanted_[w] = w < workers;
      if (w < workers) ended_.erase(w);
    }
    operator_emptied_it_ = false;
  }
  /// Call it only for a place that exists.
  void drained(std::uint32_t worker) {
    const bool came = coming(worker);
    wanted_[worker] = false;
    counted_[worker].clear();
    operator_emptied_it_ |= came && !anybody_comes();
  }
  void restarted(std::uint32_t worker) {
    if (worker < workers_max) operator_emptied_it_ = false;
    wanted_[worker] = true;
    ended_.erase(worker);
    counted_[worker].clear();
  }
  /// want_sacrificial() has changed: its deaths are counted from zero again.
  void probation_changed() { counted_[sacrificial_place].clear(); }
  void start_failed(std::uint32_t worker, bool draining, steady_time now) {
    if (!draining) counted_[worker].push_back(now);
  }
  /// Counts a death that is not blamed on a sample and came without progress.
  void died(std::uint32_t worker, bool draining, supervision::death::how how, bool counts, steady_time now) {
    wedged_.erase(worker);
    if (counts && !draining) counted_[worker].push_back(now);
    const bool brings_nobody_back =
        type_ == restart_type::temporary ||
        (type_ == restart_type::transient && how == supervision::death::how::normal);
    if (brings_nobody_back && !draining && worker != sacrificial_place) ended_.insert(worker);
  }
  void wedged(std::uint32_t worker) { wedged_.insert(worker); }

  [[nodiscard]] bool operator_emptied_it() const { return operator_emptied_it_; }

  // ---- checks of the pool

  void check_start(const supervision::start_child& start, steady_time now) {
    auto& last = incarnations_[start.who.worker];
    if (start.who.incarnation != last + 1) throw violation{"an incarnation was skipped or used again"};
    const bool again = ++last > 1;
    if (start.sacrificial != (start.who.worker == sacrificial_place))
      throw violation{"the wrong place is sacrificial"};
    if (!again) return;
    restarts_.push_back(now);
    while (now - restarts_.front() >= std::chrono::seconds(1)) restarts_.pop_front();
    if (restarts_.size() > 50) throw violation{"more than fifty restarts in a second"};
  }

  /// Valid reasons: a place was given up by the rules, or too few workers were ready for a minute.
  void check_failure(const failure& why, steady_time now) const {
    const bool too_often =
        std::ranges::any_of(counted_, [&](const auto& entry) { return too_many(entry.second, now); });
    const bool too_few = few_since_ && now - *few_since_ >= std::chrono::seconds(60);
    if (!too_often && !too_few && anybody_comes())
      throw violation{"the pool gave up without a valid reason: " + why.message};
    if (operator_emptied_it_)
      throw violation{"the pool gave up although an operator had emptied it: " + why.message};
  }

  void check_places(const std::vector<supervision::place_view>& places, const living_processes& living,
                    steady_time now) {
    std::uint32_t ready = 0;
    for (const supervision::place_view& view : places) {
      const auto p = living.find(view.worker);
      const bool exists = p != living.end();
      const bool says_so = view.state == child_state::starting || view.state == child_state::ready ||
                           view.state == child_state::draining || view.state == child_state::unkillable;
      if (exists != says_so) throw violation{"the pool shows a nonexistent process, or hides one"};
      if (view.state == child_state::ready && !p->second.ready) throw violation{"ready too early"};
      if (exists && p->second.ready && !p->second.wedged && view.worker != sacrificial_place) ++ready;
      if (view.state == child_state::failed) {
        if (!too_many(counted_[view.worker], now) && !known_failed_.contains(view.worker))
          throw violation{"a place failed without having died too often"};
        known_failed_.insert(view.worker);
      } else {
        known_failed_.erase(view.worker);
      }
    }
    if (anybody_comes()) operator_emptied_it_ = false;
    if (ready >= 1) {
      few_since_.reset();
    } else if (!few_since_) {
      few_since_ = now;
    }
  }

 private:
  [[nodiscard]] bool belongs(std::uint32_t worker) const {
    return wanted_.at(worker) && !ended_.contains(worker) && !known_failed_.contains(worker);
  }
  [[nodiscard]] bool coming(std::uint32_t worker) const {
    return belongs(worker) && !wedged_.contains(worker);
  }
  [[nodiscard]] bool anybody_comes() const {
    for (std::uint32_t w = 0; w < workers_max; ++w) {
      if (coming(w)) return true;
    }
    return false;
  }
  [[nodiscard]] bool too_many(const std::deque<steady_time>& deaths, steady_time now) const {
    const auto recent =
        std::ranges::count_if(deaths, [&](steady_time t) { return now - t <= std::chrono::seconds(60); });
    return recent > static_cast<std::ptrdiff_t>(intensity_);
  }

  std::uint32_t intensity_;
  restart_type type_;
  std::map<std::uint32_t, std::uint32_t> incarnations_;
  std::map<std::uint32_t, bool> wanted_;  // the operators' latest orders
  // places whose process ended and is not restarted, because of the restart type
  std::set<std::uint32_t> ended_;
  // places whose process survives SIGKILL: occupied until the process ends
  std::set<std::uint32_t> wedged_;
  std::map<std::uint32_t, std::deque<steady_time>> counted_;  // deaths that count, since the last operator's action
  std::deque<steady_time> restarts_;
  std::set<std::uint32_t> known_failed_;
  std::optional<steady_time> few_since_;
  bool operator_emptied_it_ = false;
};

}  // namespace penstock::testing
