// The words in which status, deaths, describe, why and events report deaths and hangs.
#pragma once

#include "runtime/base/counted.hpp"
#include "runtime/base/units.hpp"
#include "runtime/base/work_kind.hpp"

#include <penstock/report.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// Reports name the kernel function that a thread waits in. For a suspended process, they show this word
/// instead.
inline constexpr std::string_view suspended_channel = "stopped";

/// Whether the process ended because a restart or drain was requested: it stopped in time, or the request was
/// to kill it at once. Such an end is not called a death.
template <class Death>
[[nodiscard]] bool ended_on_request(const Death& death) {
  return death.cause == death_cause::stopped && !death.ignored_stop_seconds;
}

/// "was killed: it had not stopped within 10 s of the request"
[[nodiscard]] inline std::string killed_at_stop_in_words(nanoseconds ignored) {
  return fmt::format("was killed: it had not stopped within {} of the request", duration_for_people(ignored));
}

/// Shown as the sender of a signal if the session did not send it and nothing identifies the sender.
inline constexpr std::string_view unknown_sender = "sent by another process or by its own code";
/// The reason for a death by a signal that the session did not send. `details`: "no OOM kill was counted"; may be empty.
[[nodiscard]] inline std::string reason_of_sent_signal(std::string_view details) {
  return fmt::format("{}, not by the session{}{}", unknown_sender, details.empty() ? "" : "; ", details);
}

/// Who sent the signal that ended a process, without details: "sent by penstock chaos". `reason`: the reason for the
/// death. Empty if nobody sent the signal because a fault raised it; the current work then caused the death. If the
/// signal was sent, the cause is unknown.
[[nodiscard]] inline std::string_view sender_in(bool ended_by_signal, std::string_view reason) {
  return ended_by_signal ? reason.substr(0, reason.find(", not by ")) : std::string_view();
}

/// A cause of death, as shown in the list of a bad sample's or job's deaths: "SIGSEGV", "SIGKILL (sent by penstock
/// chaos)".
[[nodiscard]] inline std::string cause_with_sender(std::string_view cause, std::string_view sender) {
  return sender.empty() ? std::string(cause) : fmt::format("{} ({})", cause, sender);
}
[[nodiscard]] inline bool has_sender(std::string_view cause) {
  return cause.find(" (sent by ") != std::string_view::npos;
}

/// Consecutive equal causes are counted: "SIGSEGV, 2 x SIGABRT".
[[nodiscard]] inline std::string causes_in_words(const std::vector<std::string>& causes) {
  std::string text;
  for (auto from = causes.begin(); from != causes.end();) {
    const auto to = std::find_if(from, causes.end(), [&](const std::string& cause) { return cause != *from; });
    text += text.empty() ? "" : ", ";
    if (to - from > 1) text += fmt::format("{} x ", to - from);
    text += *from;
    from = to;
  }
  return text;
}

/// What a sample or job has to do with these deaths: "it killed 3 workers", or "it was in progress when 3 workers died" if a
/// signal was sent to one of them.
[[nodiscard]] inline std::string deaths_over_work(std::string_view it, const std::vector<std::string>& causes, std::uint64_t deaths) {
  if (std::ranges::none_of(causes, has_sender)) return fmt::format("{} killed {}", it, counted(deaths, "worker"));
  return fmt::format("{} was in progress when {} died", it, counted(deaths, "worker"));
}

/// "4 batches to load again (2 of them had been lost before)", "1 job to run again". Without a tense: it is also read after the end.
[[nodiscard]] inline std::string repeated_in_words(std::uint64_t held, std::uint64_t again, work_kind kind) {
  if (kind == work_kind::jobs) return counted(held, "job", "jobs") + " to run again";
  const std::string repeated = counted(held, "batch", "batches") + " to load again";
  if (again == 0) return repeated;
  if (again < held) return fmt::format("{} ({} of them had been lost before)", repeated, again);
  return repeated + (held == 1 ? " (it had been lost before)" : " (all had been lost before)");
}

/// What to do about a sample, or a job, that hangs again and again. Empty if a time limit has already ended an attempt.
[[nodiscard]] constexpr std::string_view way_out_of_hangs(work_kind kind, bool timed_out) noexcept {
  if (timed_out) return {};
  if (kind == work_kind::samples) {
    return "restarting a worker does not help; the session itself kills a worker after [loader.hang] item_timeout, and "
           "quarantines the sample after [quarantine] max_attempts such deaths";
  }
  return kind == work_kind::jobs ? "restarting a worker does not help, but a time limit does: [jobs] timeout, or that of the job"
                                 : "restarting a worker does not help, but a time limit does: DataLoader(timeout=60, on_bad_sample=\"skip\") leaves "
                                   "the sample out after three tries";
}

/// "2 times: in worker/0 at 23:04:05 after 40 s, in worker/1 at 23:05:10 after 1 m 2 s". Lists at most the last three.
/// Times are in UTC.
[[nodiscard]] inline std::string hangs_in_words(const hung_work& hung) {
  constexpr std::size_t shown = 3;
  std::string text;
  for (std::size_t i = hung.hangs.size() - std::min(hung.hangs.size(), shown); i < hung.hangs.size(); ++i) {
    const hung_work::hang& h = hung.hangs[i];
    const auto second = std::chrono::floor<std::chrono::seconds>(h.time.time_since_epoch()).count() % (24 * 60 * 60);
    text += fmt::format("{} in worker/{} at {:02}:{:02}:{:02} after {}{}", text.empty() ? "" : ",", h.worker, second / 3600, second / 60 % 60, second % 60,
                        duration_for_people(nanoseconds(static_cast<std::int64_t>(h.seconds * 1e9))), h.timed_out && hung.job ? ", its time limit" : "");
  }
  return fmt::format("{}:{}", counted(hung.hangs.size(), "time"), text);
}

/// The same list, followed by advice. Used for work that is being retried.
[[nodiscard]] inline std::string hangs_and_way_out(const hung_work& hung, work_kind kind) {
  const std::string_view way_out = way_out_of_hangs(kind, std::ranges::any_of(hung.hangs, &hung_work::hang::timed_out));
  return fmt::format("{}{}{}", hangs_in_words(hung), way_out.empty() ? "" : "; ", way_out);
}

}  // namespace penstock
