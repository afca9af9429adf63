// Terminates one child process (worker, GPU owner or rank): which requests were sent and when, which signal
// is due next, and how to interpret its exit status. Pure: events and the time come in, signals to send come
// out of advance(). Used by worker_supervision, owner_supervision and the launcher's launch_book.
//
//   starting -- its program is not executed by the start deadline --> killed
//
//              stop(patience)          patience is over
//   running ------------------> asked --------------------+
//      |  \                       |                        v              5 s             reaped
//      |   +-- hang ----------> aborting -- 2 s -------> killed ----> unkillable ------> (ended)
//      |                          SIGABRT, SIGCONT         ^  SIGKILL
//      +-- violate, kill ----------------------------------+
//      +-- link closed -- grace, and it still lives -------+
//
// The first reason is kept: a worker that is killed for missing heartbeats and then violates the protocol
// died of missing heartbeats. Later events only bring deadlines forward.
//
// A deadline does not count time without polls (rule W10): when advance() itself is late, because the watcher
// was stopped or the machine slept, pending deadlines are postponed by the same time. Otherwise a child that
// exited in time would seem to survive SIGKILL, only because its exit has not been read yet.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/exit_report.hpp"
#include "runtime/base/late_polls.hpp"
#include "runtime/base/result.hpp"

#include <penstock/report.hpp>

#include <csignal>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace penstock::supervision {

/// A child that gets less time than this to stop will usually be killed, so no warning is logged.
inline constexpr nanoseconds hurried_stop{1'000'000'000};

struct termination_settings {
  nanoseconds after_abort{2'000'000'000};  ///< time for the child's handler to write a stack; then SIGKILL
  nanoseconds after_kill{5'000'000'000};       ///< after this it must be in an uninterruptible system call
  nanoseconds after_closed_link{250'000'000};  ///< a process that exits closes its link a moment before
  nanoseconds late_look{1'000'000'000};        ///< a call this long after the previous one is late
};

/// Send this signal to the child's whole group. Follow SIGABRT by SIGCONT: a stopped process handles
/// SIGABRT only once it continues.
struct send_signal {
  int number = 0;
};
/// This child is about to be killed for this reason; for the log. Emitted once, before the signal. Not
/// emitted for a closed link.
struct killing_begins {
  death_cause cause = death_cause::unknown;
  std::string reason;  ///< "no heartbeat for 10 s"
};
/// The child survives SIGKILL. Emitted once; its exit may still be reported later.
struct survives_kill {};

using termination_command = std::variant<send_signal, killing_begins, survives_kill>;

/// The reason for a death by a signal of the fault injector.
inline constexpr const char* text_of_injected_signal = "sent by penstock chaos";

/// What is known about the sender of the signal that ended a process.
struct signal_evidence {
  bool injected = false;        ///< the fault injector sent it
  pid_t sender = 0;             ///< the process that sent it, according to the dying one; 0: unknown
  bool oom_is_counted = false;  ///< the kernel counts OOM kills, and has counted none
};

class termination {
 public:
  termination(const termination_settings& settings, steady_time now)
      : settings_(settings), polls_(settings.late_look, now) {}

  /// The child's exec is in progress, which may take long if its file system is slow. If started() is
  /// not called within `deadline`, the start is killed (rule W2).
  void starting(steady_time now, nanoseconds deadline);
  /// What the start waits for, as part of the reason: "executing '/mnt/worker'".
  void start_waits_for(std::string what) { start_waits_for_ = std::move(what); }
  void started() { start_by_ = never; }
  /// Why the start failed: our reason if we gave it up, otherwise `why`.
  [[nodiscard]] failure why_not_started(failure why) const;

  /// The child will be replaced or removed for this reason (stopped or
  /// memory) once it has finished its leases. Sets no deadline yet. A later call for the same cause replaces the reason.
  void retire(death_cause why, std::string reason = {});
  /// The child was asked to stop and has `patience` to exit. Later calls can only shorten this time.
  void stop(steady_time now, nanoseconds patience);
  /// The child hangs: SIGABRT, then SIGKILL. Does nothing if it is already being terminated.
  void hang(steady_time now, death_cause why, std::string reason);
  /// The child violated the protocol: SIGKILL at once. Its messages are ignored from now on.
  void violate(steady_time now, std::string reason);
  /// SIGKILL at once, although the child is not at fault, because an operator ordered it or there is no memory for the
  /// child. That is then the cause, even if the child was to be replaced because of its memory.
  void kill(steady_time now);
  /// SIGKILL at once, for this reason, because the child would not handle
  /// another signal. Does nothing if it is already being terminated.
  void kill(steady_time now, death_cause why, std::string reason);
  /// The child closed its link. If it does not exit within the
  /// grace period, it is killed for violating the protocol.
  void link_closed(steady_time now);

  /// A SIGKILL ended the child, and the kernel counted an OOM kill. The OOM kill is then the cause,
  /// unless this session had its own reason to kill the child. A closed link is no such reason: the
  /// kernel closes the link of a process that it kills, and on a busy machine the exit may take
  /// longer than the grace period.
  void oom_killed(const process::exit_report& end);

  /// The commands to carry out now. Call after every event, at next_deadline(), and at least twice a second.
  [[nodiscard]] std::vector<termination_command> advance(steady_time now);
  [[nodiscard]] steady_time next_deadline() const;

  /// Whether the child violated the protocol, so that its messages are dropped.
  [[nodiscard]] bool fenced() const noexcept { return fenced_; }
  /// Whether a signal has been sent or is due at a known time.
  [[nodiscard]] bool under_way() const noexcept { return kill_at_ != never || killed_; }
  /// Whether SIGKILL has been sent.
  [[nodiscard]] bool killed() const noexcept { return killed_; }
  [[nodiscard]] bool written_off() const noexcept { return written_off_; }
  /// Why the child is being terminated; empty if it is not.
  [[nodiscard]] std::optional<death_cause> cause() const noexcept { return cause_; }
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }
  /// When the child was found to hang; empty if it was not.
  [[nodiscard]] std::optional<steady_time> hung_at() const noexcept { return hung_at_; }

  // What the child's exit means. Call these once the child is reaped.

  /// Why the child died: our reason if we ended it, otherwise the cause that its exit status shows.
  [[nodiscard]] death_cause cause_of(const process::exit_report& end) const;
  /// The cause in words: "SIGSEGV", "exit 3", "hang".
  [[nodiscard]] std::string cause_text(const process::exit_report& end) const;
  /// The cause that the exit status alone shows: signal, exit or unknown, no matter which signals we sent.
  [[nodiscard]] static death_cause own_cause_of(const process::exit_report& end) noexcept;
  [[nodiscard]] bool killed_here(const process::exit_report& end) const {
    return killed_ && end.ended_by(SIGKILL);
  }
  /// If this session killed the child for a fault: the reason ("no heartbeat for 10 s"). If the child
  /// exceeded its memory limit: how much it used. Otherwise empty.
  [[nodiscard]] std::string fault(const process::exit_report& end) const;
  /// Whether the child died of a SIGKILL that this session did not send.
  [[nodiscard]] bool killed_from_outside(const process::exit_report& end) const;
  /// Who sent the signal that ended the child: "sent by another process or by its own code, not by
  /// the session; no OOM kill was counted". Empty if this session sent it, or if a fault of its own
  /// code may have raised it.
  [[nodiscard]] std::string why_signalled(const process::exit_report& end, const signal_evidence& evidence) const;
  /// If the child ignored a request to stop: how long after the request it was killed. Empty if it ended in
  /// another way, or had no time to stop.
  [[nodiscard]] std::optional<nanoseconds> ignored_stop(const process::exit_report& end) const;
  /// Whether the child exited on request, or was killed because it did not. Its current
  /// work is then not blamed.
  [[nodiscard]] bool left_as_told(const process::exit_report& end) const;

 private:
  void look(steady_time now);
  void kill_by(steady_time when);
  void begin(death_cause why, std::string reason);
  [[nodiscard]] bool only_left_its_link(const process::exit_report& end) const;

  termination_settings settings_;
  late_polls polls_;
  std::optional<death_cause> cause_;
  std::string reason_;
  std::optional<steady_time> hung_at_;
  std::string start_waits_for_;
  nanoseconds start_deadline_{0};
  steady_time start_by_ = never;
  steady_time kill_at_ = never;
  steady_time stop_asked_ = never;
  steady_time stop_by_ = never;
  nanoseconds ignored_stop_{0};
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
