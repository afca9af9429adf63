#include "tests/runtime/group/communicator_world.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

namespace penstock::group {
namespace {

using namespace std::chrono_literals;

constexpr communicator_limits limits{60s, 10s};
constexpr int actions_of_a_script = 4000;
constexpr int actions_until_rest = 20000;

std::uint64_t number_in(const char* variable, std::uint64_t by_default) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : by_default;
}

}  // namespace

std::uint64_t communicator_world::steps_wanted(std::uint64_t by_default) {
  return number_in("PENSTOCK_TEST_STEPS", by_default);
}
std::uint64_t communicator_world::first_seed() {
  return number_in("PENSTOCK_TEST_SEED", 1);
}

communicator_world::totals& communicator_world::totals::operator+=(const totals& o) {
  steps += o.steps, made += o.made, aborts += o.aborts, losses += o.losses, owners_lost += o.owners_lost;
  broken += o.broken, replaced += o.replaced, refused += o.refused, agreed += o.agreed, back += o.back;
  return *this;
}
std::string communicator_world::totals::text() const {
  return fmt::format(
      "{} steps, {} made, {} aborts, {} ranks lost, {} owners lost, {} broken, {} owners replaced, {} scopes "
      "refused, {} "
      "agreements, {} times back",
      steps, made, aborts, losses, owners_lost, broken, replaced, refused, agreed, back);
}
bool communicator_world::totals::everything_happened() const {
  return made > 0 && aborts > 0 && losses > 0 && owners_lost > 0 && broken > 0 && replaced > 0 &&
         refused > 0 && agreed > 0 && back > 0;
}

communicator_world::communicator_world(std::uint64_t seed) : random_(seed) {
  now_ += 1h;
  group_settings g;
  g.world_size = 2 + static_cast<std::uint32_t>(random_() % 4);
  g.process = 1;
  g.waits_for_lost = true;
  g.communicator = true;
  g.rejoin_timeout = 24h;
  g.join_timeout = 24h;
  book_ = std::make_unique<group_book>(g, now_);
  ranks_.resize(g.world_size);
  for (std::uint32_t r = 0; r < ranks_.size(); ++r) start_session(r);
}

void communicator_world::must(bool held, const char* rule) const {
  if (!held) throw std::logic_error(fmt::format("{} (action {})", rule, steps_of_script_));
}

void communicator_world::start_session(std::uint32_t r) {
  rank_state& s = ranks_[r];
  member_settings m;
  m.card.rank = r;
  m.card.world_size = static_cast<std::uint32_t>(ranks_.size());
  m.card.process = s.process = ++processes_;
  m.card.starts = s.starts++;
  m.card.host = "host";
  m.card.pid = static_cast<std::int32_t>(s.process);
  m.waits_for_lost = true;
  m.communicator = true;
  m.join_timeout = m.rejoin_timeout = 24h;
  s.member = std::make_unique<member_book>(m, s.settled, now_);
  s.member->described({"abc", 0, 0});
  s.member->begins_at(s.settled);
  s.session = true;
  s.step = s.settled;
  s.held.clear();
  start_owner(s);
}

void communicator_world::start_owner(rank_state& s) {
  s.owner = std::make_unique<communicator_book>(limits);
  s.library_makes.reset();
  s.library_aborts.reset();
  s.library_hangs = false;
  s.scopes = 0;
  s.to_owner.clear();
  s.from_owner.clear();
}

void communicator_world::lose_session(std::uint32_t r) {
  rank_state& s = ranks_[r];
  ++tally_.losses;
  s.session = false;
  s.orders.clear();
  s.member.reset();
  book_->gone(s.process, "its process has ended", now_);
}

/// The process exits; its session reports that to the group and starts another one.
void communicator_world::lose_owner(rank_state& s, const char* why) {
  ++tally_.owners_lost;
  const std::uint64_t number = s.ordered;
  start_owner(s);
  s.step = s.settled;
  s.member->communicator_broken(number, why);
  s.member->communicator_aborted(number);
}

void communicator_world::move_coordinator() {
  for (rank_state& s : ranks_) {
    if (s.reports.empty() || chance(3)) continue;
    book_->heard(s.reports.front(), now_);
    s.reports.pop_front();
  }
  for (group_command& c : book_->advance(now_)) {
    if (auto* order = std::get_if<send_order>(&c)) {
      for (rank_state& s : ranks_) {
        if (s.session && s.process == order->process) s.orders.push_back(std::move(order->order));
      }
    } else if (auto* draw = std::get_if<draw_communicator_id>(&c)) {
      must(!ids_.contains(draw->number), "a number is assigned twice");
      ids_[draw->number] = fmt::format("id {}", draw->number);
      book_->communicator_id(draw->number, ids_[draw->number]);
    }
  }
  must(book_->view().outcome == group_outcome::none, "a group that should wait for its ranks has ended");
  must(book_->view().agreed >= agreed_, "an agreed step is taken back");
  if (book_->view().agreed > agreed_) ++tally_.agreed;
  agreed_ = book_->view().agreed;
}

void communicator_world::move_member(std::uint32_t r) {
  rank_state& s = ranks_[r];
  if (!s.session) return;
  if (!s.orders.empty() && !chance(3)) {
    s.member->heard(s.orders.front(), now_);
    s.orders.pop_front();
    follow_agreement(s);
  }
  if (!s.from_owner.empty() && !chance(3)) {
    const communicator_state state = s.from_owner.front();
    s.from_owner.pop_front();
    if (state.at == communicator_state::how::made) s.member->communicator_made(state.number);
    if (state.at == communicator_state::how::broken) s.member->communicator_broken(state.number, state.cause);
    if (state.at == communicator_state::how::aborted) s.member->communicator_aborted(state.number);
  }
  s.member->held({s.held.begin(), s.held.end()});
  for (member_command& c : s.member->advance(now_)) {
    if (auto* report = std::get_if<send_report>(&c)) {
      s.reports.push_back(std::move(report->report));
    } else if (auto* make = std::get_if<make_communicator>(&c)) {
      must(ids_.at(make->number) == make->id, "a communicator is made with the id of another");
      // All ranks go back to the agreed step. To go back, a process that has used a communicator is replaced.
      const std::uint64_t base = s.member->view().agreed;
      must(s.settled == base || base == 0, "ranks go back to different steps");
      if (s.step != base) ++tally_.back;
      s.step = base;
      s.held.clear();
      s.ordered = make->number;
      s.to_owner.push_back(begin_making{make->number, make->id});
    } else if (auto* abort = std::get_if<abort_communicator>(&c)) {
      s.to_owner.push_back(begin_abort{abort->number});
    }
  }
}

void communicator_world::follow_agreement(rank_state& s) {
  const std::uint64_t agreed = s.member->view().agreed;
  if (agreed <= s.settled) return;
  // A rank that has just restarted learns what the others have agreed on; every other rank needs a snapshot.
  must(s.held.contains(agreed) || s.step <= agreed, "a step is agreed although a rank has no snapshot of it");
  s.settled = agreed;
  s.step = std::max(s.step, agreed);
  std::erase_if(s.held, [&](std::uint64_t step) { return step <= agreed; });
}

void communicator_world::move_owner(std::uint32_t r) {
  rank_state& s = ranks_[r];
  if (!s.session) return;
  if (!s.to_owner.empty() && !chance(3)) {
    if (auto* make = std::get_if<begin_making>(&s.to_owner.front()))
      s.owner->make(make->number, make->id, now_);
    if (auto* abort = std::get_if<begin_abort>(&s.to_owner.front())) s.owner->abort(abort->number, now_);
    s.to_owner.pop_front();
  }
  for (communicator_command& c : s.owner->advance(now_)) {
    if (auto* make = std::get_if<begin_making>(&c)) {
      must(!s.library_makes && !s.library_aborts, "a communicator is made while another one exists");
      s.library_makes = *make;
    } else if (auto* abort = std::get_if<begin_abort>(&c)) {
      must(s.scopes == 0, "an abort starts while a scope is open");
      ++tally_.aborts;
      s.library_makes.reset();
      s.library_aborts = abort->number;
    } else if (auto* told = std::get_if<tell_communicator>(&c)) {
      s.from_owner.push_back(told->state);
    } else {
      ++tally_.replaced;
      return lose_owner(s, "cannot be aborted");
    }
  }
}

void communicator_world::move_library(rank_state& s) {
  if (!s.session || s.library_hangs) return;
  if (s.library_makes && chance(3)) {
    const std::uint64_t number = std::exchange(s.library_makes, std::nullopt)->number;
    if (!quiet_ && chance(20)) return s.owner->failed(number, "cannot connect");
    if (!quiet_ && chance(50)) return;  // never finishes, which the deadline detects
    ++tally_.made;
    s.owner->made(number);
  } else if (s.library_aborts && chance(3)) {
    if (!quiet_ && chance(40)) {
      s.library_hangs = true;
      return;
    }
    s.owner->aborted(*std::exchange(s.library_aborts, std::nullopt));
  } else if (!quiet_ && s.owner->usable() && chance(300)) {
    ++tally_.broken;
    s.owner->failed(s.owner->number(), "remote error");
  }
}

void communicator_world::move_program(std::uint32_t r) {
  rank_state& s = ranks_[r];
  if (!s.session) return;
  if (s.scopes > 0) {
    if (!quiet_ && chance(200)) now_ += 11s;  // keeps its scope open
    if (!chance(3)) return;
    s.owner->close_scope();
    --s.scopes;
    return;
  }
  if (!s.member->may_communicate() || s.held.size() >= held_max) return;
  // A step needs all ranks, so no rank is more than one ahead.
  const auto behind = [&](const rank_state& o) { return !o.session || o.step + 1 < s.step + 1; };
  if (std::ranges::any_of(ranks_, behind)) return;
  if (!s.owner->open_scope()) {
    ++tally_.refused;
    return;
  }
  ++s.scopes;
  ++s.step;
  if (s.step % 4 == 0 || chance(8)) s.held.insert(s.step);
}

void communicator_world::check() const {
  std::set<std::uint64_t> used;
  for (const rank_state& s : ranks_) {
    if (s.session && s.scopes > 0 && s.owner->usable() && s.member->may_communicate())
      used.insert(s.owner->number());
    must(s.settled <= agreed_, "a rank has settled a step that is not agreed");
  }
}

communicator_world::totals communicator_world::run() {
  const auto act = [&] {
    ++steps_of_script_;
    const auto r = static_cast<std::uint32_t>(random_() % ranks_.size());
    now_ += nanoseconds(static_cast<std::int64_t>(random_() % 20'000'000));
    switch (random_() % 6) {
      case 0: move_coordinator(); break;
      case 1: move_member(r); break;
      case 2: move_owner(r); break;
      case 3: move_library(ranks_[r]); break;
      case 4: move_program(r); break;
      default:
        if (!ranks_[r].session) {
          if (chance(10)) start_session(r);
        } else if (!quiet_ && chance(400)) {
          lose_session(r);
        } else if (!quiet_ && chance(400)) {
          lose_owner(ranks_[r], "its process has ended");
        }
    }
    check();
  };
  for (int i = 0; i < actions_of_a_script; ++i) act();
  quiet_ = true;
  for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
    if (!ranks_[r].session) start_session(r);
    if (ranks_[r].library_hangs || ranks_[r].library_aborts || ranks_[r].library_makes) now_ += 61s;
  }
  const std::uint64_t goal = agreed_ + 40;
  for (int i = 0; i < actions_until_rest && agreed_ < goal; ++i) act();
  must(agreed_ >= goal, "without faults the ranks do not continue");
  tally_.steps = steps_of_script_;
  return tally_;
}

}  // namespace penstock::group
