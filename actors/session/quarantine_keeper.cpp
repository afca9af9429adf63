#include "actors/session/quarantine_keeper.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/patient_wait.hpp"
#include "runtime/base/sample_name.hpp"
#include "runtime/base/text.hpp"
#include "runtime/control/quarantine_file.hpp"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <filesystem>
#include <future>
#include <mutex>
#include <utility>

namespace penstock::session {
namespace {

result<control::quarantine_list> read_and_check(const std::string& file) {
  auto list = control::read_quarantine(file);
  if (!list) return list;
  const std::filesystem::path path(file);
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  const bool there = ::access(path.c_str(), F_OK) == 0;
  if (::access(there ? path.c_str() : folder.c_str(), W_OK) != 0)
    return refuse_os(errc::io, errno, fmt::format("[quarantine] file '{}'", printable(file)));
  return list;
}

/// "2 samples listed in 'bad.jsonl' are left out: sample 17 (cat/034.jpg), sample 90".
std::string left_out_in_words(const std::vector<quarantine_report>& known, const std::string& file) {
  constexpr std::size_t named_most = 10;
  std::string names;
  for (std::size_t i = 0; i < std::min(known.size(), named_most); ++i)
    names += (i == 0 ? "" : ", ") + sample_for_people(known[i].sample, printable(known[i].path.value_or("")));
  return fmt::format("{} listed in '{}' {} left out: {}{}", counted(known.size(), "sample"), printable(file), known.size() == 1 ? "is" : "are",
                     names, known.size() > named_most ? ", ..." : "");
}

}  // namespace

/// The data to write. Shared with the thread, which may outlive the keeper.
struct quarantine_keeper::writing {
  std::mutex mutex;
  std::deque<std::uint64_t> samples;
  bool given_up = false;

  void write(const std::string& file, const control::quarantine_entry& entry) {
    const auto ok = control::append_quarantine(file, entry);
    const std::lock_guard hold(mutex);
    samples.pop_front();
    if (!ok && !given_up) {
      log::error("quarantine", "{}; the next run will try sample {} again", ok.error().message,
                 entry.sample.sample);
    }
  }
};

quarantine_keeper::quarantine_keeper(std::string file, std::string session, quarantine_deadlines deadlines)
    : file_(std::move(file)),
      session_(std::move(session)),
      deadlines_(deadlines),
      writing_(std::make_shared<writing>()),
      thread_("penstock-quaran") {}

quarantine_keeper::~quarantine_keeper() {
  close();
}

result<std::vector<quarantine_report>> quarantine_keeper::open(const std::string& fingerprint) {
  fingerprint_ = fingerprint;
  std::vector<quarantine_report> known;
  if (file_.empty()) return known;
  const auto answer = std::make_shared<std::promise<result<control::quarantine_list>>>();
  auto arrived = answer->get_future();
  if (!thread_.post([answer, file = file_] { answer->set_value(read_and_check(file)); }))
    return refuse_os(errc::system, EAGAIN, "starting the thread that reads the quarantine file");
  if (!is_ready_within(arrived, deadlines_.reading)) {
    return refuse(errc::timed_out,
                  "[quarantine] file '{}' could not be read within {} ms: its file system is not responding",
                  printable(file_), deadlines_.reading.count());
  }
  auto list = arrived.get();
  if (!list) return tl::unexpected(std::move(list.error()));
  for (const std::string& notice : list->notices) log::warn("quarantine", "{}", notice);
  for (control::quarantine_entry& entry : list->entries) {
    if (entry.fingerprint == fingerprint) known.push_back(std::move(entry.sample));
  }
  if (const std::size_t others = list->entries.size() - known.size(); others > 0) {
    log::write(known.empty() ? log::level::warn : log::level::info, "quarantine",
               fmt::format("{} of the {} in '{}' {} to another dataset and {} not apply to this one", others,
                           counted(list->entries.size(), "entry", "entries"), printable(file_), others == 1 ? "belongs" : "belong",
                           others == 1 ? "does" : "do"));
  }
  if (!known.empty()) log::warn("quarantine", "{}", left_out_in_words(known, file_));
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
  const std::uint64_t number = entry.sample.sample;
  {
    const std::lock_guard hold(writing_->mutex);
    writing_->samples.push_back(number);
  }
  if (thread_.post([kept = writing_, file = file_, entry = std::move(entry)] { kept->write(file, entry); }))
    return;
  const std::lock_guard hold(writing_->mutex);
  writing_->samples.pop_back();
  log::error("quarantine", "sample {} could not be written to '{}': no thread could be started to write it",
             number, printable(file_));
}

void quarantine_keeper::close() {
  if (std::exchange(closed_, true)) return;
  const bool written = thread_.wait_until_idle(deadlines_.closing);
  if (!written) {
    const std::lock_guard hold(writing_->mutex);
    writing_->given_up = true;
    if (!writing_->samples.empty()) {
      log::error("quarantine",
                 "writing [quarantine] file '{}' took more than {} ms: is the file locked, or is its disk "
                 "not responding? The next run may try these samples again: {}",
                 printable(file_), deadlines_.closing.count(), fmt::join(writing_->samples, ", "));
    }
  }
  thread_.stop_within(std::chrono::milliseconds(0));
}

}  // namespace penstock::session
