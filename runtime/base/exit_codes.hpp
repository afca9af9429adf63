// The exit codes of penstock's processes, each with its meaning, once. Children of a session
// (penstock-worker, penstock-gpu, programs that call worker_main) end with those of the second half; the
// supervisor reads them, and the command line ends with its own (tools/penstock/output.hpp names these) plus
// `configuration`. docs: `penstock help exit-codes`, docs/semantics.md.
#pragma once

namespace penstock::exit_codes {

inline constexpr int finished = 0;  ///< was told to stop and did, or had nothing left to do
inline constexpr int failed = 1;    ///< anything without a code of its own

// From sysexits.h, where it has the meaning.
inline constexpr int temporary = 75;      ///< another process may do better: restart, not counted against the worker
inline constexpr int permission = 77;     ///< a restart would end the same way
inline constexpr int configuration = 78;  ///< the same: the config, or the program that it names, is wrong

inline constexpr int poisoned = 79;     ///< the device's context is lost; only a new process can go on
inline constexpr int hardware = 80;     ///< the device itself is broken
inline constexpr int protocol = 82;     ///< the session's messages make no sense to this program: another version?
inline constexpr int parent_lost = 83;  ///< the session is gone

/// A child ended between clone and exec: it never ran its program. Only spawn() sees it.
inline constexpr int not_executed = 127;

/// Whether a child that ends with this code would end the same way again: the run fails with the child's own
/// reason instead of restarting it.
[[nodiscard]] constexpr bool is_permanent(int code) noexcept {
  return code == permission || code == configuration || code == protocol;
}

}  // namespace penstock::exit_codes
