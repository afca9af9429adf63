// Ranks with a real group_book, member_books and communicator_books, over links that deliver late. Libraries fail, hang and answer late,
// programs keep scopes open, and processes are killed at any step. The world knows independently what is allowed: a script that breaks a
// rule throws.
#pragma once

#include "runtime/group/communicator_book.hpp"
#include "runtime/group/group_book.hpp"
#include "runtime/group/member_book.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace penstock::group {

class communicator_world {
 public:
  struct totals {
    std::uint64_t steps = 0, made = 0, aborts = 0, losses = 0, owners_lost = 0, broken = 0, replaced = 0,
                  refused = 0, agreed = 0, back = 0;
    totals& operator+=(const totals& o);
    [[nodiscard]] std::string text() const;
    [[nodiscard]] bool everything_happened() const;
  };

  explicit communicator_world(std::uint64_t seed);
  /// Throws std::logic_error with the broken rule.
  totals run();

  static std::uint64_t steps_wanted(std::uint64_t by_default);
  /// PENSTOCK_TEST_SEED, or 1.
  static std::uint64_t first_seed();

 private:
  /// A rank: its session, and the process that uses its GPU.
  struct rank_state {
    std::unique_ptr<member_book> member;
    std::unique_ptr<communicator_book> owner;
    std::deque<group_order> orders;     // in transit to the rank
    std::deque<member_report> reports;  // in transit to the coordinator
    std::deque<communicator_command>
        to_owner;  // the member's begin_making and begin_abort
    std::deque<communicator_state> from_owner;
    std::optional<begin_making> library_makes;
    std::optional<std::uint64_t> library_aborts;
    bool library_hangs = false;
    std::uint32_t scopes = 0;
    std::uint32_t starts = 0;
    std::uint64_t process = 0;
    std::uint64_t step = 0;     // the program's step
    std::uint64_t settled = 0;  // acknowledged
    std::uint64_t ordered = 0;  // the communicator that the rank's owner was ordered to make
    std::set<std::uint64_t> held;
    bool session = false;
  };

  bool chance(std::uint32_t in) { return random_() % in == 0; }
  void must(bool held, const char* rule) const;
  void start_session(std::uint32_t r);
  void start_owner(rank_state& s);
  void lose_session(std::uint32_t r);
  void lose_owner(rank_state& s, const char* why);
  void move_coordinator();
  void move_member(std::uint32_t r);
  void move_owner(std::uint32_t r);
  void move_library(rank_state& s);
  void move_program(std::uint32_t r);
  void follow_agreement(rank_state& s);
  void check() const;

  std::mt19937_64 random_;
  steady_time now_{};
  std::unique_ptr<group_book> book_;
  std::vector<rank_state> ranks_;
  std::map<std::uint64_t, std::string> ids_;
  std::uint64_t processes_ = 100;
  std::uint64_t agreed_ = 0;
  std::uint64_t steps_of_script_ = 0;
  bool quiet_ = false;  // no more faults: the group must come to rest
  totals tally_;
};

}  // namespace penstock::group
