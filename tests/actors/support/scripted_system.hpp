// CAF's own scheduler for tests, for CAF 0.17 or CAF 1: only what the test delivers runs, and time passes only when the test says so.
#pragma once

#include "actors/caf/caf.hpp"
#include "actors/protocol/local/actors.hpp"

#if PENSTOCK_CAF_1
#include <caf/test/fixture/deterministic.hpp>
#include <caf/test/reporter.hpp>
#else
#include <caf/atom.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#endif

#include <chrono>
#include <memory>

namespace penstock::testing {

#if PENSTOCK_CAF_1

class scripted_system {
 public:
  void deliver() { fixture_->dispatch_messages(); }
  void advance(std::chrono::nanoseconds time) { fixture_->advance_time(time); }
  [[nodiscard]] std::shared_ptr<caf::actor_system> system() const { return {fixture_, &fixture_->sys}; }

 private:
  static std::shared_ptr<caf::test::fixture::deterministic> make() {
    actors::detail::register_messages<protocol::local_messages>();
    // The fixture reports each step to the process's reporter and throws if there is none.
    static const auto reporter = caf::test::reporter::make_default();
    caf::test::reporter::instance(reporter.get());
    return std::make_shared<caf::test::fixture::deterministic>();
  }
  std::shared_ptr<caf::test::fixture::deterministic> fixture_ = make();
};

#else

class scripted_system {
 public:
  scripted_system() : clock_(dynamic_cast<caf::scheduler::test_coordinator&>(made_->system.scheduler())) {}

  void deliver() { clock_.run(); }
  void advance(std::chrono::nanoseconds time) {
    clock_.advance_time(std::chrono::duration_cast<caf::timespan>(time));
  }
  [[nodiscard]] std::shared_ptr<caf::actor_system> system() const { return {made_, &made_->system}; }

 private:
  struct settings_for_tests : caf::actor_system_config {
    settings_for_tests() {
      set("scheduler.policy", caf::atom("testing"));
      set("logger.verbosity", caf::atom("quiet"));
    }
  };
  struct with_settings {
    settings_for_tests settings;
    caf::actor_system system{settings};
  };
  std::shared_ptr<with_settings> made_ = std::make_shared<with_settings>();
  caf::scheduler::test_coordinator& clock_;
};

#endif

}  // namespace penstock::testing
