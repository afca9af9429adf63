// The end of one child process, worker or GPU owner alike: who was told what and when, which signal is due next, and
// what the end that is finally reported means. Pure: events and the time come in, signals to send come out of
// advance(). Used by worker_supervision and owner_supervision.
//
//              stop(patience)          patience is over
//   running ------------------> asked --------------------+
//      |  \                       |                        v              5 s             reaped
//      |   +-- hang ----------> aborting -- 2 s -------> killed ----> unkillable ------> (ended)
//      |                          SIGABRT, SIGCONT         ^  SIGKILL
//      +-- violate, kill ----------------------------------+
//      +-- link closed -- grace, and it still lives -------+
//
// The first reason stays the reason: a worker that is killed for its silence and breaks the protocol meanwhile died of
// its silence. Later events only bring deadlines forward.
//
// A deadline does not count time in which nobody looked (semantics 21): when advance() itself comes late, because the
// session was stopped or the machine slept, what is pending is put off by as much. Else a child that ended in time, and
// whose end only has not been read yet, would be taken for one that survives SIGKILL.
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
  nanoseconds after_closed_link{250'000'000};    ///< a process that ends closes its link a moment before
  nanoseconds late_look{1'000'000'000};          ///< a call this long after the last one was itself late
};

/// To the child's whole group. SIGABRT is followed by SIGCONT: a stopped process dies of it only when it goes on.
struct send_signal {
  int number = 0;
};
/// It is about to be killed, for this reason: something to log. Comes before its signal, once.
struct killing_begins {
  death_cause cause = death_cause::unknown;
  std::string reason;  ///< "no heartbeat for 10 s"
};
/// It survives SIGKILL. Comes once; its end may still be reported later.
struct survives_kill {};

using termination_command = std::variant<send_signal, killing_begins, survives_kill>;

class termination {
 public:
  termination(const termination_settings& settings, steady_time now) : settings_(settings), looked_(now) {}

  /// It will have to go, for this reason (stopped or memory), when it has finished what it has. No deadline yet.
  void retire(death_cause why);
  /// It was told to stop and has so long. Again: only ever sooner.
  void stop(steady_time now, nanoseconds patience);
  /// It hangs: SIGABRT, then SIGKILL. Nothing if its end is under way already.
  void hang(steady_time now, death_cause why, std::string reason);
  /// It broke the protocol: SIGKILL at once, and nothing that it says counts any more.
  void violate(steady_time now, std::string reason);
  /// SIGKILL at once without a fault of its own: an operator's order, or no memory for it.
  void kill(steady_time now);
  /// SIGKILL at once, for this reason: it would hear no other signal. Nothing if its end is under way already.
  void kill(steady_time now, death_cause why, std::string reason);
  /// It closed its link. One that lives on past the grace is killed for a breach of protocol.
  void link_closed(steady_time now);

  /// What is to be done now. Call after every event, at next_deadline(), and at least twice a second.
  [[nodiscard]] std::vector<termination_command> advance(steady_time now);
  [[nodiscard]] steady_time next_deadline() const;

  /// It broke the protocol: what it says is dropped.
  [[nodiscard]] bool fenced() const noexcept { return fenced_; }
  /// A signal has been sent or is due at a known time.
  [[nodiscard]] bool under_way() const noexcept { return kill_at_ != never || killed_; }
  [[nodiscard]] bool written_off() const noexcept { return written_off_; }
  /// Why we end it; nothing as long as nobody wants its end.
  [[nodiscard]] std::optional<death_cause> cause() const noexcept { return cause_; }
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }

  // What the end means. Asked once it is reaped.

  /// Why it died: our reason if we ended it, else its own.
  [[nodiscard]] death_cause cause_of(const process::exit_report& end) const;
  /// The same in words: "SIGSEGV", "exit 3", "hang".
  [[nodiscard]] std::string cause_in_words(const process::exit_report& end) const;
  /// Signal, exit or unknown, as if we had had no part in it.
  [[nodiscard]] static death_cause own_cause_of(const process::exit_report& end) noexcept;
  [[nodiscard]] bool killed_here(const process::exit_report& end) const { return killed_ && end.ended_by(SIGKILL); }
  /// A SIGKILL that nobody here has sent.
  [[nodiscard]] bool killed_from_outside(const process::exit_report& end) const;
  /// It went because it was told to, or was killed because it did not: no death of what it was working on.
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
