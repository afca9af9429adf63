// The stack of a dying process. A worker program writes its stack to its log when a signal ends it (such as
// the SIGABRT with which the supervisor ends a hung worker), and the session finds it there. The stack consists of
// modules, offsets and, where the module has symbols, functions; readers of the death record can look up
// files and lines.
#pragma once

#include "runtime/process/stack_frame.hpp"

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

namespace penstock::process {

/// The most that a dying process writes: a line for the signal and one for each frame. A line consists of the
/// mark, "#12 ", the module's name, "+0x", an offset, " in ", a function and the line end.
inline constexpr std::size_t stack_frames_max = 48;
inline constexpr std::size_t stack_line_max = 16 + 4 + stack_module_max + 3 + 16 + 4 + stack_function_max + 1;
inline constexpr std::size_t stack_bytes_max = (1 + stack_frames_max) * stack_line_max;

/// The first line of the stack that Python writes for a dying process, newest frame first.
inline constexpr std::string_view python_stack_begin = "Stack (most recent call first):";

/// From now on SIGABRT, SIGSEGV, SIGBUS, SIGFPE and SIGILL write the stack of the affected thread to stderr
/// and then end the process as usual. For a signal sent from outside, that is the working thread.
/// Signals whose disposition is not the default are left alone. The handler is async-signal-safe.
void write_stack_when_dying();

/// Marks the calling thread as the one that loads samples. Gives it its
/// own signal stack, so that a stack overflow can be reported, too.
void this_thread_works();

/// The id of the working thread; 0 if none has registered.
[[nodiscard]] int working_thread() noexcept;

/// Whether write_stack_when_dying() wrote this line.
[[nodiscard]] bool is_stack_line(std::string_view line) noexcept;
/// Makes such a line readable: shows the function's name as in its source.
[[nodiscard]] std::string readable_stack_line(std::string_view line);
/// The frames in this output, newest first, as "/path/of/module+0x1a2b in resize(picture const&)", without "
/// in ..." if the function is unknown; empty if there are none.
[[nodiscard]] std::vector<std::string> stack_in(std::string_view output);
/// The process that sent this signal, according to the dying process; 0: a fault raised the signal, or the
/// sender is unknown. Ignores stacks for other signals: a helper of the process may have written them.
[[nodiscard]] pid_t sender_in(std::string_view output, int signal);
/// The last lines of the output, without a stack.
[[nodiscard]] std::string last_lines_without_stack(std::string_view output, std::size_t count);

}  // namespace penstock::process
