// Reads the record of an ended session from its file, and what the file system and the machine add to it.
#include "runtime/base/death_words.hpp"
#include "runtime/base/text.hpp"
#include "runtime/control/session_record.hpp"
#include "runtime/process/process_facts.hpp"
#include "runtime/telemetry/report_json.hpp"
#include "tools/penstock/control/written_files.hpp"
#include "tools/penstock/past/past_session.hpp"
#include "tools/penstock/watch/event_times.hpp"

#include <fmt/core.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <ctime>
#include <utility>

namespace penstock::cli {

using json = nlohmann::ordered_json;

namespace {

/// When this machine was started.
std::chrono::system_clock::time_point boot_time() {
  timespec up{};
  ::clock_gettime(CLOCK_BOOTTIME, &up);
  return std::chrono::system_clock::now() - std::chrono::seconds(up.tv_sec);
}

}  // namespace

result<past_session> read_past(const std::filesystem::path& record) {
  struct stat facts {};
  if (::stat(record.c_str(), &facts) != 0)
    return refuse_os(errc::io, errno, fmt::format("reading '{}'", printable(record.native())));
  auto lines = control::read_record(record);
  if (!lines) return tl::unexpected(std::move(lines.error()));
  const auto written = std::chrono::system_clock::from_time_t(facts.st_mtim.tv_sec) +
                       std::chrono::microseconds(facts.st_mtim.tv_nsec / 1000);
  past_session past(*lines, telemetry::as_utc(written));
  if (written < boot_time()) past.machine_has_stopped();
  const json pid = past.summary().value("pid", json());
  if (past.has_no_end() && control::is_written(record) && pid.is_number() && process::wait_channel(pid.get<pid_t>()) == suspended_channel)
    past.is_suspended();
  const json started = past.started();
  if (const auto when = started.is_string() ? time_of_utc(started.get<std::string>()) : std::nullopt) {
    written_files files(*when);
    files.are(past.summary());
    past.files_are(files.as_json());
  }
  return past;
}

result<json> ask_record(const std::filesystem::path& record, const json& question) {
  const auto past = read_past(record);
  if (!past) return tl::unexpected(past.error());
  return past->answer(question);
}

}  // namespace penstock::cli
