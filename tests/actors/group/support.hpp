// A group on the test's clock: the actors' links are lists, and the test acts as the network between them.
#pragma once

#include "actors/caf/caf.hpp"
#include "actors/group/coordinator.hpp"
#include "actors/group/member.hpp"
#include "tests/actors/support/deterministic.hpp"

#include <map>
#include <vector>

namespace penstock::testing {

using namespace group;

class fake_member_wire final : public member_wire {
 public:
  void send(member_report report) override { sent.push_back(std::move(report)); }
  void stop() override { stopped = true; }
  std::vector<member_report> sent;
  bool stopped = false;
};

class fake_coordinator_wire final : public coordinator_wire {
 public:
  void send(link_id to, group_order order) override { sent.emplace_back(to, std::move(order)); }
  void stop() override { stopped = true; }
  std::vector<std::pair<link_id, group_order>> sent;
  bool stopped = false;
};

/// What an actor has reported to its session.
struct told final : group_listener {
  void group_changed(const group_status& now) override { status = now; }
  void group_event(event_kind what, std::string text) override { events.emplace_back(what, std::move(text)); }
  void joined() override { ++joins; }
  void gate_moved() override { ++moves; }
  void group_over(group_outcome how, const std::optional<group_cause>& why) override {
    outcome = how;
    cause = why;
    ++ends;
  }
  void member_gone() override { ++gone; }
  void coordinator_gone() override { ++gone; }

  group_status status;
  std::vector<std::pair<event_kind, std::string>> events;
  group_outcome outcome = group_outcome::none;
  std::optional<group_cause> cause;
  int joins = 0;
  int moves = 0;
  int ends = 0;
  int gone = 0;
};

inline rank_card card(std::uint32_t rank, std::uint32_t world_size = 2) {
  rank_card c;
  c.rank = rank;
  c.world_size = world_size;
  c.process = 100 + rank;
  c.host = "node7";
  c.pid = static_cast<std::int32_t>(4000 + rank);
  c.settings = {{"sampler.seed", "7"}};
  return c;
}

/// One rank's member actor.
class rank_stage {
 public:
  explicit rank_stage(deterministic_system& world, rank_card who, bool waits_for_lost = false)
      : world_(world) {
    member_deps deps;
    deps.settings.waits_for_lost = waits_for_lost;
    deps.settings.card = std::move(who);
    deps.group = "job/photos";
    deps.where = "@somewhere";
    deps.gate = gate;
    deps.connect = [this](const member_actor&, std::shared_ptr<newest_order> orders) {
      orders_ = std::move(orders);
      return wire;
    };
    deps.listener = &news;
    actor = spawn_member(world.system, std::move(deps));
    world.deliver();
  }
  ~rank_stage() { say(drop_group{}); }
  rank_stage(const rank_stage&) = delete;
  rank_stage& operator=(const rank_stage&) = delete;

  template <class Message>
  void say(Message message) {
    actors::tell(actor, std::move(message));
    world_.deliver();
  }
  void order(group_order what) {
    if (orders_->put(0, std::move(what))) say(orders_arrived{});
  }
  /// The coordinator's answer to the last report, with this phase.
  void answer(group_phase phase, bool go = false, std::optional<std::uint64_t> limit = {}) {
    group_order o;
    o.view.generation = 1;
    o.view.coordinator = 100;
    o.view.phase = phase;
    o.view.incarnations = {1, 1};
    o.view.limit = limit;
    o.number = ++orders_sent_;
    o.heard = last().number;
    o.standing = rank_standing::member;
    o.incarnation = 1;
    o.go = go;
    order(std::move(o));
  }
  [[nodiscard]] const member_report& last() const { return wire->sent.back(); }
  [[nodiscard]] std::optional<std::uint64_t> hand_out(nanoseconds after = nanoseconds(0)) const {
    const auto said = gate->hand_out_next(actor_time() + after);
    return said == gate_answer::go ? std::optional(gate->handed_out()) : std::nullopt;
  }
  [[nodiscard]] steady_time actor_time() const { return world_.now(); }

  std::shared_ptr<hand_over_gate> gate = std::make_shared<hand_over_gate>();
  std::shared_ptr<fake_member_wire> wire = std::make_shared<fake_member_wire>();
  told news;
  member_actor actor;

 private:
  deterministic_system& world_;
  std::shared_ptr<newest_order> orders_;
  std::uint64_t orders_sent_ = 0;
};

}  // namespace penstock::testing
