#include "tools/penstock/jobs/map_run.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"

#include <cerrno>
#include <thread>
#include <utility>

namespace penstock::cli {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t bytes_in_a_write = 256 * KiB;
constexpr auto journal_reaches_the_disk_every = 1s;
constexpr std::uint64_t told_at_most = 10;  // at most this many messages of each kind; the output contains all failures
constexpr std::size_t told_bytes_of_a_reason = 500;

}  // namespace

struct map_run::job {
  std::uint64_t index = 0;
  std::uint64_t hash = 0;
  std::uint64_t bytes = 0;
  std::shared_ptr<const std::string> line;
  std::uint32_t tries = 0;
  std::uint32_t attempts = 0;  // attempts in earlier tries
  job_outcome last;            // the outcome of the previous try
};

map_run::map_run(map_rules rules, deps deps)
    : rules_(rules), deps_(std::move(deps)), output_(deps_.output), errors_(deps_.errors) {}

result<void> map_run::run() {
  std::thread reader([this] { read_lines(); });
  write_lines();
  reader.join();
  if (deps_.journal != nullptr) {
    if (auto ok = deps_.journal->sync(); !ok) fail(std::move(ok.error()));
  }
  const std::lock_guard hold(mutex_);
  if (failure_) return tl::unexpected(*failure_);
  return {};
}

void map_run::stop() {
  {
    const std::lock_guard hold(mutex_);
    stopping_ = true;
  }
  deps_.input->interrupt();
  room_.notify_all();
}

map_counts map_run::counts() const {
  const std::lock_guard hold(mutex_);
  return counts_;
}

bool map_run::has_read_all() const {
  const std::lock_guard hold(mutex_);
  return read_all_;
}

bool map_run::stopping() const {
  const std::lock_guard hold(mutex_);
  return stopping_;
}

void map_run::fail(failure why) {
  {
    const std::lock_guard hold(mutex_);
    if (!failure_) failure_ = std::move(why);
  }
  stop();
}

/// Called when further results cannot be written or recorded.
void map_run::lose_output(failure why) {
  fail(std::move(why));
  deps_.abandon();
}

// ---- reading ----------------------------------------------------------------------------------------------

void map_run::read_lines() {
  if (auto ok = begin(); !ok) fail(std::move(ok.error()));
  while (true) {
    const auto more = read_line();
    if (!more) fail(more.error());
    if (!more || !*more) break;
  }
  const std::lock_guard hold(mutex_);
  reading_ = false;
  news_.notify_all();
}

result<void> map_run::begin() {
  if (auto ok = compare_with_journal(); !ok) return ok;
  if (stopping() || !deps_.begin_output) return {};
  return deps_.begin_output();
}

result<void> map_run::compare_with_journal() {
  if (deps_.journal == nullptr) return {};
  return deps_.input->look_ahead(deps_.journal->end(), [this](const input_line& line) -> result<void> {
    const auto hash = deps_.journal->hash_of(line.number - 1);
    if (!hash) return tl::unexpected(hash.error());
    if (*hash && **hash != line.hash) return differs(line.number);
    return {};
  });
}

tl::unexpected<failure> map_run::differs(std::uint64_t line) const {
  return refuse(
      errc::state_mismatch,
      "line {} of {} differs from the line in the journal: use the original input, or another journal", line,
      deps_.input->name());
}

result<bool> map_run::read_line() {
  if (!wait_for_room()) return false;
  auto read = deps_.input->next();
  if (!read) return tl::unexpected(std::move(read.error()));
  if (!*read) {
    tell_surplus_of_journal();
    const std::lock_guard hold(mutex_);
    read_all_ = !stopping_;
    return false;
  }
  input_line& line = **read;
  lines_read_ = line.number;
  const auto what = std::make_shared<job>(job{line.number - 1, line.hash, line.bytes, nullptr, 0, 0, {}});
  const auto known = take_from_journal(*what);
  if (!known) return tl::unexpected(known.error());
  if (*known) return true;
  if (line.too_long()) {
    expect(*what);
    settled(what, outcome_of({.status = job_status::too_large,
                              .text = fmt::format("the line has {}; the limit is {}",
                                                  counted(line.bytes, "byte"), line.text.size())}));
    return true;
  }
  if (const std::string why = why_bad(rules_.lines, line.text); !why.empty()) {
    const auto skipped = bad_line(line, why);
    if (!skipped) return tl::unexpected(skipped.error());
    return true;
  }
  what->line = std::make_shared<const std::string>(std::move(line.text));
  expect(*what);
  const auto begun = start(what);
  if (begun) return true;
  const bool on_purpose = stopping();
  settled(what, outcome_of({.status = job_status::cancelled, .text = begun.error().message}));
  if (on_purpose) return false;
  return tl::unexpected(begun.error());
}

/// True: the job need not run.
result<bool> map_run::take_from_journal(const job& what) {
  if (deps_.journal == nullptr) return false;
  auto known = deps_.journal->find(what.index);
  if (!known) return tl::unexpected(std::move(known.error()));
  if (!*known) return false;
  journal_entry& entry = **known;
  if (entry.hash != what.hash) return differs(what.index + 1);
  if (entry.status != job_status::ok && rules_.retry_failed) return false;
  expect(what);
  const bool nonzero_exit = entry.status == job_status::ok && rules_.lines == line_rule::text && entry.exit_code.value_or(0) != 0;
  arrived(what, entry.status, nonzero_exit, std::move(entry.output), true);
  return true;
}

/// Called at the end of the input.
void map_run::tell_surplus_of_journal() const {
  if (deps_.journal == nullptr || stopping() || deps_.journal->end() <= lines_read_) return;
  deps_.tell(
      fmt::format("the journal has jobs up to line {}, but {} has {}: the other jobs are not in the output",
                  deps_.journal->end(), deps_.input->name(), counted(lines_read_, "line")));
}

void map_run::expect(const job& what) {
  const std::lock_guard hold(mutex_);
  lines_.expect(what.index);
}

/// False: stop reading.
bool map_run::wait_for_room() {
  std::unique_lock hold(mutex_);
  room_.wait(hold, [this] {
    return stopping_ || (lines_.size() < rules_.under_way_max && lines_.bytes() < rules_.bytes_waiting_max);
  });
  return !stopping_;
}

result<void> map_run::bad_line(const input_line& line, const std::string& why) {
  if (rules_.bad_lines == bad_line_rule::fail)
    return refuse(errc::io, "line {} of {} {}", line.number, deps_.input->name(), why);
  std::uint64_t skipped = 0;
  {
    const std::lock_guard hold(mutex_);
    skipped = ++counts_.skipped;
    counts_.input_bytes += line.bytes + 1;
  }
  if (skipped <= told_at_most)
    deps_.tell(fmt::format("line {} of {} is skipped: it {}", line.number, deps_.input->name(), why));
  if (skipped == told_at_most) deps_.tell("further skipped lines are counted, but not listed");
  return {};
}

result<void> map_run::start(const std::shared_ptr<job>& what) {
  return deps_.start({what->index, what->line, what->tries > 0},
                       [this, what](job_outcome outcome) { settled(what, std::move(outcome)); });
}

// ---- outcomes ---------------------------------------------------------------------------------------------

void map_run::settled(const std::shared_ptr<job>& what, job_outcome outcome) {
  outcome.attempts += what->attempts;
  if (outcome.trouble) lose_output(*outcome.trouble);
  const bool wanted_again = outcome.again && what->tries < rules_.retries;
  if (wanted_again) {
    const std::lock_guard hold(mutex_);
    if (!stopping_) {
      what->last = std::move(outcome);
      again_.push_back(what);
      news_.notify_one();
      return;
    }
  }
  if (outcome.ends_run) fail({errc::usage, outcome.text, 0});
  over(what, outcome, !wanted_again && !outcome.ends_run);
}

/// Called on the writing thread, which must not wait for room in the pool's queue, so the job is urgent.
void map_run::try_again(const std::shared_ptr<job>& what) {
  const job_outcome before = std::move(what->last);
  if (!stopping()) {
    ++what->tries;
    what->attempts = before.attempts;
    const auto begun = start(what);
    if (begun) return;
    fail(begun.error());
  }
  over(what, before, false);
}

/// Outcomes that are not final are not recorded, so the next run repeats the job.
void map_run::over(const std::shared_ptr<job>& what, const job_outcome& outcome, bool is_final) {
  const std::string_view text = what->line ? std::string_view(*what->line) : std::string_view();
  std::string line =
      output_line(what->index, outcome, what->line ? input_as_json(rules_.lines, text) : "null");
  if (is_final && outcome.status != job_status::cancelled && deps_.journal != nullptr) {
    if (auto ok = deps_.journal->append(what->hash, line); !ok) lose_output(std::move(ok.error()));
  }
  // The pool counts cancelled jobs itself.
  if (outcome.from_pool && outcome.status != job_status::cancelled && deps_.judge) deps_.judge(verdict_on(outcome));
  const bool never_began = outcome.status == job_status::cancelled && outcome.attempts == 0;
  if (deps_.log != nullptr && !never_began) {
    const std::string entry = job_log_line(std::chrono::system_clock::now(), what->index, outcome, text);
    if (auto ok = deps_.log->add(entry); !ok) lose_output(std::move(ok.error()));
  }
  if (has_failed(outcome.status) && !outcome.ends_run) note_failure(*what, outcome);
  const bool nonzero_exit = outcome.status == job_status::ok && exited_with_another_code_than_0(outcome);
  arrived(*what, outcome.status, nonzero_exit, std::move(line), false, outcome.held);
}

void map_run::note_failure(const job& what, const job_outcome& outcome) {
  const std::uint64_t failures = ++failures_;
  if (failures == told_at_most + 1) {
    deps_.tell(rules_.format == output_format::json
                     ? "further failed jobs are listed only in the output"
                     : "further failed jobs are not listed: --job-log lists all");
  }
  if (failures <= told_at_most) {
    deps_.tell(fmt::format("line {} (index {}): {}: {}", what.index + 1, what.index, name_of(outcome.status),
                             shortened(outcome.text, told_bytes_of_a_reason)));
  }
  if (failures != rules_.failures_max) return;
  fail({errc::job_failed,
        fmt::format("{} failed: ending the run because of --halt", counted(failures, "job")), 0});
  if (deps_.halt) deps_.halt();
}

void map_run::arrived(const job& what, job_status status, bool nonzero_exit, std::string line, bool known,
                      std::shared_ptr<const void> held) {
  const std::lock_guard hold(mutex_);
  lines_.arrived(what.index, std::move(line), std::move(held));
  ++counts_.by_status.at(static_cast<std::size_t>(status));
  ++counts_.jobs;
  counts_.nonzero_exits += nonzero_exit ? 1 : 0;
  counts_.from_journal += known ? 1 : 0;
  counts_.input_bytes += what.bytes + 1;
  if (lines_.ready()) news_.notify_one();
}

// ---- writing ----------------------------------------------------------------------------------------------

void map_run::write_lines() {
  auto synced = std::chrono::steady_clock::now();
  std::unique_lock hold(mutex_);
  while (true) {
    const bool news = news_.wait_for(hold, std::chrono::milliseconds(journal_reaches_the_disk_every), [this] {
      return lines_.ready() || !again_.empty() || (!reading_ && lines_.size() == 0);
    });
    const auto again = std::exchange(again_, {});
    std::vector<std::string> lines;
    for (std::size_t bytes = 0; bytes < bytes_in_a_write && lines_.ready(); bytes += lines.back().size())
      lines.push_back(*lines_.next());
    if (news && lines.empty() && again.empty()) return;
    room_.notify_all();
    hold.unlock();
    if (!output_lost_) write(std::move(lines));
    for (const auto& what : again) try_again(what);
    const auto now = std::chrono::steady_clock::now();
    if (deps_.journal != nullptr && now - synced >= journal_reaches_the_disk_every) {
      synced = now;
      if (auto ok = deps_.journal->sync(); !ok) lose_output(std::move(ok.error()));
    }
    hold.lock();
  }
}

void map_run::write(std::vector<std::string> lines) {
  std::string text;
  for (std::string& line : lines) {
    written_outcome one = written_as(rules_.format, rules_.lines, std::move(line));
    text += one.out;
    if (deps_.errors >= 0) static_cast<void>(errors_.write(one.err));  // an error cannot be reported anywhere
    if (one.missing > 0) {
      deps_.tell(fmt::format("{} of a command's output is missing: raise --keep-output, or use --results",
                               bytes_for_people(one.missing)));
    }
  }
  const int why = output_.write(text);
  if (why == 0) return;
  output_lost_ = true;
  const std::string doing = fmt::format("writing the results to {}", deps_.output_name);
  if (why != ETIMEDOUT) return lose_output(os_failure(errc::io, why, doing));
  lose_output({errc::timed_out,
               doing + ": the program that reads them does not respond; the remaining results are lost", 0});
}

}  // namespace penstock::cli
