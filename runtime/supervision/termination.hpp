// Terminates one child process, worker or GPU owner alike: what it was told and when, which signal is due next, and how
// to read its exit status in the end. Pure: events and the time come in, signals to send come out of advance(). Used by
// worker_supervision and owner_supervision.
//
//              stop(patience)          patience is over
//   running ------------------> asked --------------------+
//      |  \                       |                        v              5 s             reaped
//      |   +-- hang ----------> aborting -- 2 s -------> killed ----> unkillable ------> (ended)
//      |                          SIGABRT, SIGCONT         ^  SIGKILL
//      +-- violate, kill ----------------------------------+
//      +-- link closed -- grace, and it still lives -------+
//
// The first reason stays: a worker that is being killed for missing heartbeats and then breaks the protocol died of
// missing heartbeats. Later events only bring deadlines forward.
//
// A deadline does not count time in which nobody polled (semantics 21): when advance() itself is late, because the
// session was stopped or the machine slept, pending deadlines move back by as much. Otherwise a child that ended in
// time, but whose exit has not been read yet, would be taken for one that survives SIGKILL.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/exit_report.hpp"

#include <penstock/report.hpp>

#include <csignal>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace penstock::supervision {

struct termination_settings {
  nanoseconds after_abort{2'000'000'000};        ///< its handler writes a stack; then SIGKILL
  nanoseconds after_kill{5'000'000'000};         ///< still there: an uninterruptible system call
  nanoseconds after_closed_link{250'000'000};    ///< an exiting process closes its link a moment earlier
  nanoseconds late_look{1'000'000'000};          ///< a call this long after the last one is itself late
};

/// To the child's whole group. SIGABRT is followed by SIGCONT: a stopped process dies of it only once it continues.
struct send_signal {
  int number = 0;
};
/// It is about to be killed, for this reason: to be logged. Comes once, before the signal.
struct killing_begins {
  death_cause cause = death_cause::unknown;
  std::string reason;  ///< "no heartbeat for 10 s"
};
/// It survives SIGKILL. Comes once; its exit may still be reported later.
struct survives_kill {};

using termination_command = std::variant<send_signal, killing_begins, survives_kill>;

class termination {
 public:
  termination(const termination_settings& settings, steady_time now) : settings_(settings), looked_(now) {}

  /// It has to go, for this reason (stopped or memory), once it has finished what it holds. No deadline yet.
  void retire(death_cause why);
  /// It was told to stop and has this long. Later calls can only shorten that.
  void stop(steady_time now, nanoseconds patience);
  /// It hangs: SIGABRT, then SIGKILL. Does nothing if it is already being terminated.
  void hang(steady_time now, death_cause why, std::string reason);
  /// It broke the protocol: SIGKILL at once; its messages are ignored from now on.
  void violate(steady_time now, std::string reason);
  /// SIGKILL at once, through no fault of its own: an operator's order, or no memory for it.
  void kill(steady_time now);
  /// SIGKILL at once, for this reason: it would hear no other signal. Nothing if its end is under way already.
  void kill(steady_time now, death_cause why, std::string reason);
  /// It closed its link. One that lives on past the grace is killed for a breach of protocol.
  void link_closed(steady_time now);

  /// What to do now. Call after every event, at next_deadline(), and at least twice a second.
  [[nodiscard]] std::vector<termination_command> advance(steady_time now);
  [[nodiscard]] steady_time next_deadline() const;

  /// It broke the protocol: its messages are dropped.
  [[nodiscard]] bool fenced() const noexcept { return fenced_; }
  /// A signal has been sent or is due at a known time.
  [[nodiscard]] bool under_way() const noexcept { return kill_at_ != never || killed_; }
  [[nodiscard]] bool written_off() const noexcept { return written_off_; }
  /// Why it is being ended; nothing while it is not.
  [[nodiscard]] std::optional<death_cause> cause() const noexcept { return cause_; }
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }

  // What its exit means. Ask once it is reaped.

  /// Why it died: our reason if we ended it, else its own.
  [[nodiscard]] death_cause cause_of(const process::exit_report& end) const;
  /// The same in words: "SIGSEGV", "exit 3", "hang".
  [[nodiscard]] std::string cause_in_words(const process::exit_report& end) const;
  /// Signal, exit or unknown, ignoring our part in it.
  [[nodiscard]] static death_cause own_cause_of(const process::exit_report& end) noexcept;
  [[nodiscard]] bool killed_here(const process::exit_report& end) const { return killed_ && end.ended_by(SIGKILL); }
  /// A SIGKILL that this session did not send.
  [[nodiscard]] bool killed_from_outside(const process::exit_report& end) const;
  /// It exited because it was told to, or was killed because it did not: what it was working on is not to blame.
  [[nodiscard]] bool left_as_told(const process::exit_report& end) const;

 private:
  void look(steady_time now);
  void kill_by(steady_time when);
  void begin(death_cause why, std::string reason);
  [[nodiscard]] bool only_left_its_link(const process::exit_report& end) const;

  termination_settings settings_;
  steady_time looked_;
  std::optional<death_cause> cause_;
  std::string reason_;
  steady_time kill_at_ = never;
  steady_time write_off_at_ = never;
  std::vector<termination_command> outbox_;
  bool announced_ = false;
  bool fenced_ = false;
  bool left_its_link_ = false;
  bool asked_ = false;
  bool killed_ = false;
  bool written_off_ = false;
};

}  // namespace penstock::supervision
