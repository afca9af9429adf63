#include "actors/host/process_logs.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/text.hpp"
#include "runtime/process/crash_notes.hpp"

#include <chrono>

namespace penstock::host {
namespace {

// A line of the session's own log must fit one atomic write to a pipe; see log.cpp.
constexpr std::size_t passed_line_max = 2000;

void tell_dropped(const std::string& source, std::uint64_t lines) {
  if (lines > 0)
    log::info(source, "dropped {}; `penstock logs {}` shows the latest ones", counted(lines, "line"), source);
}

std::int64_t unix_ms_now() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

void process_logs::tell(const std::string& source, const std::vector<std::string>& lines) {
  for (const std::string& line : lines) {
    const auto passage = book_.pass(source, std::chrono::steady_clock::now());
    if (!passage.pass) continue;
    tell_dropped(source, passage.dropped);
    log::info(source, "{}", shortened(printable(line), passed_line_max));
  }
}

void process_logs::wrote(const std::string& source, std::uint32_t incarnation, std::string_view line) {
  book_.wrote(source, incarnation, process::is_stack_line(line) ? process::readable_stack_line(line) : line, unix_ms_now());
  const std::lock_guard hold(mutex_);
  tell(source, filters_[source].pass(line.substr(0, passed_line_max)));
}

void process_logs::ended(const std::string& source) {
  {
    const std::lock_guard hold(mutex_);
    tell(source, filters_[source].rest());
  }
  tell_dropped(source, book_.ended(source));
}

}  // namespace penstock::host
