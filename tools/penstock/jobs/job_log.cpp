#include "tools/penstock/jobs/job_log.hpp"

#include "runtime/base/text.hpp"
#include "runtime/base/write_all.hpp"
#include "runtime/telemetry/report_json.hpp"

#include <fcntl.h>
#include <fmt/core.h>

#include <cerrno>
#include <utility>

namespace penstock::cli {

std::string job_log_line(std::chrono::system_clock::time_point ended, std::uint64_t index,
                         const job_outcome& outcome, std::string_view input_line) {
  return fmt::format(
             R"({{"time":"{}","index":{},"status":"{}","attempts":{},"exit":{},"seconds":{},"text":{},"line":{}}})",
             telemetry::as_utc(ended), index, name_of(outcome.status), outcome.attempts,
             outcome.exit_code ? std::to_string(*outcome.exit_code) : "null",
             outcome.seconds ? fmt::format("{:.6f}", *outcome.seconds) : "null",
             outcome.text.empty() ? std::string("null") : json_string(outcome.text),
             json_string(input_line)) +
         "\n";
}

result<std::unique_ptr<job_log>> job_log::open(const std::string& path) {
  unique_fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!file) return refuse_os(errc::io, errno, fmt::format("opening the job log '{}'", printable(path)));
  return std::unique_ptr<job_log>(new job_log(path, std::move(file)));
}

result<void> job_log::add(std::string_view line) {
  const std::lock_guard hold(mutex_);
  if (const int why = write_all(file_.get(), line); why != 0)
    return refuse_os(errc::io, why, fmt::format("writing the job log '{}'", printable(path_)));
  return {};
}

}  // namespace penstock::cli
