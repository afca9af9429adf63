// One worker's process as the supervisor sees it, and what its end means: the cause, the sample that is
// suspected, what the restart rules hear of it, and the record that users read. Pure.
#pragma once

#include "actors/protocol/link.hpp"
#include "actors/protocol/messages.hpp"
#include "actors/scheduler/scheduler.hpp"
#include "runtime/arena/flight_recorder.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/exit_report.hpp"
#include "runtime/supervision/restart_policy.hpp"

#include <penstock/report.hpp>

namespace penstock::supervisor {

struct child {
  worker_ref who;
  pid_t pid = -1;
  bool sacrificial = false;
  std::shared_ptr<protocol::worker_link> link;
  steady_time started{};
  bool introduced = false;
  bool described = false;
  bool assigned = false;
  bool ready = false;
  bool draining = false;
  bool left_its_link = false;
  bool traced = false;                   // found so when its time was over, and still so
  std::optional<death_cause> condemned;  // why we are killing it, or why it goes
  std::string condemned_for;             // in words
  steady_time abort_at = never;
  steady_time kill_at = never;
  steady_time unkillable_at = never;
  std::optional<protocol::worker_gives_up> farewell;
  std::optional<process::exit_report> ended;
  std::string last_lines;
  std::vector<std::string> stack;
  std::string wait_channel;  // when it was found hanging
  arena::flight_reading last_flight;
  std::string cause_text;
  std::uint64_t rss_bytes = 0;
  std::optional<std::string> gpu_user;  // what of the GPU it was found to hold
};

/// The sample that it is at, from its last flight reading.
std::optional<schedule::flight_mark> sample_in_hand(const child& c);

// All of these are asked only once `ended` is set.

/// "SIGSEGV", "exit 3", or why we ended it.
std::string cause_in_words(const child& c);
/// The sample that it died on, if it died on one.
std::optional<schedule::flight_mark> suspected_in(const child& c);
supervision::death as_death(const child& c, const scheduler::judgement& verdict);
death_report as_report(const child& c, const scheduler::judgement& verdict, steady_time now);
/// What ends the run: a worker's own last word is better than its exit code.
std::string last_words_of(const child& c);

}  // namespace penstock::supervisor
