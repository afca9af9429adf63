// A group of books for tests: its members, its coordinator, and links that lose no message.
#pragma once

#include "runtime/group/group_book.hpp"
#include "runtime/group/member_book.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace penstock::testing {

/// A group on lossless links. Rank r is process 100 + r, or its replacement.
struct small_group {
  explicit small_group(std::uint32_t ranks, bool waits = false, bool communicator = false) {
    settings.world_size = ranks;
    settings.process = 100;
    settings.waits_for_lost = waits;
    settings.communicator = communicator;
    for (std::uint32_t r = 0; r < ranks; ++r) {
      group::member_settings m;
      m.card.rank = r;
      m.card.world_size = ranks;
      m.card.process = 100 + r;
      m.card.host = "host" + std::to_string(r);
      m.card.pid = static_cast<std::int32_t>(1000 + r);
      m.card.settings = {{"sampler.seed", "1"}};
      m.waits_for_lost = waits;
      m.communicator = communicator;
      cards.push_back(m);
    }
    members.resize(ranks);
    ends.resize(ranks);
    book = std::make_unique<group::group_book>(settings, now);
  }

  void start(std::uint32_t rank, std::uint64_t steps = 0) {
    members[rank] = std::make_unique<group::member_book>(cards[rank], steps, now);
    ends[rank].reset();
  }
  void start_all() {
    for (std::uint32_t r = 0; r < settings.world_size; ++r) start(r);
  }
  /// All ranks are present and have described one dataset.
  void begin() {
    start_all();
    run();
    describe();
  }
  /// Delivers every message, for this long.
  void run(nanoseconds time = nanoseconds(0)) {
    const steady_time until = now + time;
    do {
      for (int i = 0; i < 4; ++i) turn();
      now += std::min<nanoseconds>(std::chrono::milliseconds(100),
                                   std::max<nanoseconds>(until - now, nanoseconds(1)));
    } while (now < until);
  }
  /// Like run(), with one more process that reports but receives nothing.
  void run_beside(group::member_book& another, nanoseconds time) {
    for (const steady_time until = now + time; now < until; run(std::chrono::milliseconds(100))) {
      for (group::member_command& c : another.advance(now)) {
        if (auto* report = std::get_if<group::send_report>(&c)) book->heard(report->report, now);
      }
    }
  }
  void describe(const std::string& fingerprint = "abc") {
    for (auto& m : members) {
      if (m) m->described({fingerprint, 0, 0});
    }
    run();
  }
  void deliver(std::uint32_t rank, std::uint64_t batches = 1) {
    for (std::uint64_t i = 0; i < batches; ++i) {
      REQUIRE(members[rank]->may_hand_out(now));
      members[rank]->delivered(members[rank]->steps() + 1);
    }
  }
  void kill(std::uint32_t rank) {
    members[rank].reset();
    if (rank == 0) {
      book.reset();
    } else {
      book->gone(cards[rank].card.process, "killed by SIGKILL", now);
    }
  }
  /// The next process of a rank; for rank 0 with an empty book. Its launcher may not count starts.
  void replace(std::uint32_t rank, std::uint64_t steps = 0, bool counted = true) {
    cards[rank].card.process += 1000;
    if (counted) ++cards[rank].card.starts;
    if (rank == 0) {
      settings.process = cards[0].card.process;
      book = std::make_unique<group::group_book>(settings, now);
    }
    start(rank, steps);
  }
  /// The rank is cut off, lost because of its silence, and replaced by process 77. Returns the process that was cut off.
  std::unique_ptr<group::member_book> replace_cut_off(std::uint32_t rank) {
    begin();
    cut.insert(rank);
    run(std::chrono::seconds(12));
    auto cut_off = std::move(members[rank]);
    cut.clear();
    cards[rank].card.process = 77;
    start(rank);
    run();
    return cut_off;
  }
  /// Another process of a rank, started by mistake.
  [[nodiscard]] group::member_book twin_of(std::uint32_t rank) const {
    group::member_settings other = cards[rank];
    other.card.process = 77;
    other.card.pid = 4711;
    return {other, 0, now};
  }
  [[nodiscard]] std::vector<std::uint32_t> handing_out() const {
    std::vector<std::uint32_t> ranks;
    for (std::uint32_t r = 0; r < members.size(); ++r) {
      if (members[r] && members[r]->may_hand_out(now)) ranks.push_back(r);
    }
    return ranks;
  }
  [[nodiscard]] bool all_failed_with(const std::string& words) const {
    for (std::uint32_t r = 0; r < members.size(); ++r) {
      if (!members[r]) continue;
      if (!ends[r] || ends[r]->how != group::group_outcome::failed || !ends[r]->cause) return false;
      if (ends[r]->cause->cause.find(words) == std::string::npos) return false;
    }
    return true;
  }

  /// Every present rank has ended because the group has finished.
  [[nodiscard]] bool all_finished() const {
    return std::ranges::all_of(
        ends, [](const auto& end) { return end && end->how == group::group_outcome::finished; });
  }

  void turn() {
    for (std::uint32_t r = 0; r < members.size(); ++r) {
      if (!members[r]) continue;
      for (group::member_command& c : members[r]->advance(now)) {
        if (auto* report = std::get_if<group::send_report>(&c)) {
          if (book && !cut.contains(r)) book->heard(report->report, now);
        } else if (auto* make = std::get_if<group::make_communicator>(&c)) {
          made.push_back({r, make->number});
          members[r]->communicator_made(make->number);
        } else if (auto* abort = std::get_if<group::abort_communicator>(&c)) {
          aborted.push_back({r, abort->number});
          members[r]->communicator_aborted(abort->number);
        } else {
          ends[r] = std::get<group::end_rank>(c);
        }
      }
    }
    if (!book) return;
    for (group::group_command& c : book->advance(now)) {
      if (auto* draw = std::get_if<group::draw_communicator_id>(&c))
        book->communicator_id(draw->number, "id");
      auto* send = std::get_if<group::send_order>(&c);
      for (std::uint32_t r = 0; send != nullptr && r < members.size(); ++r) {
        if (members[r] && cards[r].card.process == send->process && !cut.contains(r))
          members[r]->heard(send->order, now);
      }
    }
  }

  group::group_settings settings;
  std::vector<group::member_settings> cards;
  std::vector<std::unique_ptr<group::member_book>> members;
  std::vector<std::optional<group::end_rank>> ends;
  std::unique_ptr<group::group_book> book;
  std::set<std::uint32_t> cut;  // ranks whose links carry nothing
  std::vector<std::pair<std::uint32_t, std::uint64_t>> made;
  std::vector<std::pair<std::uint32_t, std::uint64_t>> aborted;
  steady_time now{std::chrono::hours(1)};
};

using ranks = std::vector<std::uint32_t>;

}  // namespace penstock::testing
