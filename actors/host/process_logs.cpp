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

void tell(const std::string& source, std::string_view line) {
  log::info(source, "{}", shortened(printable(line), passed_line_max));
}

std::int64_t unix_ms_now() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

void process_logs::wrote(const std::string& source, std::uint32_t incarnation, std::string_view line) {
  const bool of_stack = process::is_stack_line(line);
  const auto passage = book_.wrote(source, incarnation, of_stack ? process::readable_stack_line(line) : line,
                                   std::chrono::steady_clock::now(), unix_ms_now());
  if (!passage.pass) return;
  tell_dropped(source, passage.dropped);
  const std::lock_guard hold(mutex_);
  for (const std::string& passed : filters_[source].pass(line.substr(0, passed_line_max))) tell(source, passed);
}

void process_logs::ended(const std::string& source) {
  {
    const std::lock_guard hold(mutex_);
    for (const std::string& passed : filters_[source].rest()) tell(source, passed);
  }
  tell_dropped(source, book_.ended(source));
}

}  // namespace penstock::host
