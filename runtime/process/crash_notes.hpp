// A dying process's last words: where it stood. The worker program writes its stack to its log when a signal
// ends it - also when the supervisor ends a hung worker with SIGABRT -, and the session finds it there. What
// is written are modules and offsets; names are looked up later, by whoever reads the death record.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace penstock::process {

/// From now on SIGABRT, SIGSEGV, SIGBUS, SIGFPE and SIGILL write the stack of the thread concerned to stderr
/// and then end the process as they would have. A signal sent from outside concerns the thread that works. A
/// disposition that is not the default is left alone. Only what is async-signal-safe happens in the handler.
void write_stack_when_dying();

/// The calling thread is the one that works on samples. Gives it a signal stack of its own, so that a stack
/// overflow can be told too.
void this_thread_works();

/// The thread that works, 0 if none said so.
[[nodiscard]] int working_thread() noexcept;

/// A line that write_stack_when_dying() wrote.
[[nodiscard]] bool is_stack_line(std::string_view line) noexcept;
/// The frames, newest first, as "/path/of/module+0x1a2b"; empty if there are none in this output.
[[nodiscard]] std::vector<std::string> stack_in(std::string_view output);
/// The last lines of the output without the stack.
[[nodiscard]] std::string last_lines_without_stack(std::string_view output, std::size_t count);

}  // namespace penstock::process
