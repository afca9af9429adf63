// The exit codes of penstock's processes. Children of a session (penstock-worker, penstock-gpu, programs that
// call worker_main) use the codes from `temporary` to `parent_lost`, which the supervisor interprets. The
// command line uses `configuration` and its own codes (tools/penstock/output.hpp). docs: `penstock help
// exit-codes`, docs/semantics/ (rule D20).
#pragma once

namespace penstock::exit_codes {

inline constexpr int finished = 0;  ///< stopped on request, or had nothing left to do
inline constexpr int failed = 1;    ///< any failure without its own code

// Codes from sysexits.h where their meaning fits.
inline constexpr int temporary = 75;      ///< a new process may succeed; never counts as a death of an owner (rule D18)
inline constexpr int permission = 77;     ///< restarting would not help
inline constexpr int configuration = 78;  ///< the config, or a program that it names, is wrong

inline constexpr int poisoned = 79;     ///< the device's context is lost, and only a new process can use it
inline constexpr int hardware = 80;     ///< the device itself is broken
inline constexpr int protocol = 82;     ///< invalid messages from the session, perhaps of a different version
inline constexpr int parent_lost = 83;  ///< the session is gone

// Exit codes of the command line that depend on a verb's answer (tools/penstock/output.hpp).
inline constexpr int not_met = 3;
inline constexpr int no_target = 4;
inline constexpr int refused = 7;

/// The child exited between clone and exec, without running its program. Only spawn() sees this code.
inline constexpr int not_executed = 127;

/// Whether a restarted child would exit the same way. If so, the run fails with the child's own reason.
[[nodiscard]] constexpr bool is_permanent(int code) noexcept {
  return code == permission || code == configuration || code == protocol;
}

}  // namespace penstock::exit_codes
