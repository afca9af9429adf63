#include "actors/session/quarantine_keeper.hpp"

#include "runtime/base/log.hpp"
#include "runtime/base/text.hpp"
#include "runtime/control/quarantine_file.hpp"

#include <unistd.h>

#include <cerrno>
#include <chrono>

namespace penstock::session {

result<std::vector<quarantine_report>> quarantine_keeper::open(const std::string& fingerprint) {
  fingerprint_ = fingerprint;
  std::vector<quarantine_report> known;
  if (file_.empty()) return known;
  auto list = control::read_quarantine(file_);
  if (!list) return tl::unexpected(std::move(list.error()));
  for (const std::string& notice : list->notices) log::warn("quarantine", "{}", notice);
  for (control::quarantine_entry& entry : list->entries) {
    if (entry.fingerprint == fingerprint) known.push_back(std::move(entry.sample));
  }
  const std::filesystem::path path(file_);
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  const bool there = ::access(path.c_str(), F_OK) == 0;
  if (::access(there ? path.c_str() : folder.c_str(), W_OK) != 0)
    return refuse_os(errc::io, errno, fmt::format("[quarantine] file '{}'", printable(file_)));
  return known;
}

void quarantine_keeper::keep(const scheduler::lost_sample& lost) {
  append(
      {lost.sample, lost.name.empty() ? std::nullopt : std::optional(lost.name), lost.attempts, lost.causes},
      false);
}

void quarantine_keeper::release(std::uint64_t sample) {
  append({sample, std::nullopt, 0, {}}, true);
}

void quarantine_keeper::append(quarantine_report sample, bool released) {
  if (file_.empty()) return;
  control::quarantine_entry entry;
  entry.fingerprint = fingerprint_;
  entry.sample = std::move(sample);
  entry.session = session_;
  entry.unix_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                      std::chrono::system_clock::now().time_since_epoch())
                      .count();
  entry.released = released;
  if (auto ok = control::append_quarantine(file_, entry); !ok)
    log::error("quarantine", "{}; sample {} will be met again by the next run", ok.error().message,
               entry.sample.sample);
}

}  // namespace penstock::session
