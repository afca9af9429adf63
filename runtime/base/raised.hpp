// Finds an exception of a worker's Python code in its traceback, for events, reports and the command line. Pure.
#pragma once

#include <penstock/report.hpp>

#include <memory>
#include <string_view>

namespace penstock {

/// Limits the size of a raised_exception, because one is kept for each failed sample.
inline constexpr std::size_t raised_frames_max = 10;
inline constexpr std::size_t raised_frame_bytes_max = 200;
inline constexpr std::size_t raised_message_bytes_max = 500;

/// `what`: "ValueError: no line 51". `traceback`: as Python prints it. For an exception with a cause, takes the frames of the
/// exception itself, which Python prints last. Leaves out penstock's own frames. Accepts any bytes; the result is printable.
[[nodiscard]] std::shared_ptr<const raised_exception> raised_from(std::string_view what, std::string_view traceback);

}  // namespace penstock
