#include "tools/penstock/jobs/job_log.hpp"

#include "runtime/base/text.hpp"
#include "runtime/telemetry/report_json.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

namespace penstock::cli {

std::string job_log_line(std::chrono::system_clock::time_point ended, std::uint64_t index,
                         const job_outcome& outcome, std::string_view input_line) {
  const auto text_or_null = [](const std::string& text) { return text.empty() ? "null" : json_string(text); };
  std::string line = fmt::format(
      R"({{"time":"{}","index":{},"status":"{}","attempts":{},"exit":{},"seconds":{},"text":{},"line":{})",
      telemetry::as_utc(ended), index, name_of(outcome.status), outcome.attempts,
      outcome.exit_code ? std::to_string(*outcome.exit_code) : "null",
      outcome.seconds ? fmt::format("{:.6f}", *outcome.seconds) : "null", text_or_null(outcome.text),
      json_string(input_line));
  line += fmt::format(R"(,"started":{},"signal":{}}})",
                      outcome.started ? '"' + telemetry::as_utc(*outcome.started) + '"' : "null",
                      text_or_null(outcome.signal));
  return line + "\n";
}

result<std::unique_ptr<job_log>> job_log::open(const std::string& path) {
  // Open for reading as well, to find an incomplete line from an earlier run. But open a pipe
  // only for writing: if we held its read end, writes would not fail once its reader is gone.
  struct stat facts {};
  const bool is_file = ::stat(path.c_str(), &facts) != 0 || S_ISREG(facts.st_mode);
  unique_fd file(::open(path.c_str(), (is_file ? O_RDWR : O_WRONLY) | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!file) return refuse_os(errc::io, errno, fmt::format("opening the job log '{}'", printable(path)));
  return std::unique_ptr<job_log>(new job_log(path, std::move(file)));
}

result<void> job_log::add(std::string_view line) {
  const std::lock_guard hold(mutex_);
  if (const int why = file_.append(line); why != 0)
    return refuse_os(errc::io, why, fmt::format("writing the job log '{}'", printable(path_)));
  return {};
}

}  // namespace penstock::cli
