#include "runtime/base/raised.hpp"

#include "runtime/base/one_line.hpp"
#include "runtime/base/text.hpp"

#include <algorithm>
#include <utility>

namespace penstock {
namespace {

constexpr std::string_view file_mark = "File \"";
constexpr std::string_view line_mark = "\", line ";
constexpr std::string_view function_mark = ", in ";
constexpr std::string_view own_files = "/penstock/_";

/// `File "data.py", line 12, in load` as "data.py:12, in load"; empty for other lines.
std::string frame_of(std::string_view line) {
  const std::size_t name = line.find_first_not_of(" |");  // the bar is printed within a group of exceptions
  if (name == 0 || name == std::string_view::npos || !line.substr(name).starts_with(file_mark)) return "";
  line.remove_prefix(name + file_mark.size());
  const std::size_t end = line.find(line_mark);
  if (end == std::string_view::npos) return "";
  const std::string_view rest = line.substr(end + line_mark.size());
  const std::string_view number = rest.substr(0, rest.find_first_not_of("0123456789"));
  if (number.empty()) return "";
  const std::string_view function = rest.substr(number.size());
  std::string frame(line.substr(0, end));
  frame.append(":").append(number).append(function.starts_with(function_mark) ? function : "");
  return frame;
}

/// Shortens a frame from the left, because its end gives the line and the function.
std::string bounded_frame(const std::string& frame) {
  std::string shown = printable(frame);
  if (shown.size() <= raised_frame_bytes_max) return shown;
  constexpr std::string_view left_out = "...";
  std::size_t from = shown.size() - raised_frame_bytes_max + left_out.size();
  while (from < shown.size() && (static_cast<unsigned char>(shown[from]) & 0xC0U) == 0x80U) ++from;  // within a character
  return std::string(left_out) + shown.substr(from);
}

}  // namespace

std::shared_ptr<const raised_exception> raised_from(std::string_view what, std::string_view traceback) {
  auto raised = std::make_shared<raised_exception>();
  const std::size_t colon = what.find(": ");
  raised->type = shortened(printable(what.substr(0, colon)), raised_frame_bytes_max);
  if (colon != std::string_view::npos) raised->message = shortened(one_line(what.substr(colon + 2)), raised_message_bytes_max);
  std::vector<std::string>& frames = raised->frames;
  while (!traceback.empty()) {
    const std::string_view line = traceback.substr(0, traceback.find('\n'));
    traceback.remove_prefix(std::min(line.size() + 1, traceback.size()));
    if (line.find("Traceback (most recent call last)") != std::string_view::npos) frames.clear();
    if (std::string frame = frame_of(line); !frame.empty()) frames.push_back(std::move(frame));
  }
  const auto of_program = std::ranges::find_if(frames, [](const std::string& f) { return f.find(own_files) == std::string::npos; });
  if (of_program != frames.end()) frames.erase(frames.begin(), of_program);
  if (frames.size() > raised_frames_max) frames.erase(frames.begin(), frames.end() - static_cast<std::ptrdiff_t>(raised_frames_max));
  for (std::string& frame : frames) frame = bounded_frame(frame);
  return raised;
}

}  // namespace penstock
