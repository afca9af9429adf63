#include "tools/penstock/watch/top_screen.hpp"

#include "runtime/base/units.hpp"
#include "tools/penstock/text_table.hpp"
#include "tools/penstock/watch/death_tables.hpp"
#include "tools/penstock/watch/host_tables.hpp"
#include "tools/penstock/watch/status_words.hpp"
#include "tools/penstock/watch/top_rates.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <optional>

namespace penstock::cli {
namespace {

using json = nlohmann::ordered_json;

// Above the workers: nine lines and the table's head. Below: the number of hidden workers, the event, the
// keys.
constexpr std::size_t lines_around_workers = 9 + 1 + 3;
constexpr std::size_t functions_listed = 3;  // for a pool
constexpr std::ptrdiff_t memory_column = 5;
constexpr std::size_t label_columns = 9;              // "limit    "
constexpr std::size_t narrowest_with_memory = 100;  // columns of the terminal

std::string time_text(double seconds) {
  if (seconds < 1) return fmt::format("{:.0f} ms", seconds * 1000);
  if (seconds < 10) return fmt::format("{:.1f} s", seconds);
  if (seconds < 120) return fmt::format("{:.0f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.0f} m", seconds / 60);
  return fmt::format("{:.0f} h", seconds / 3600);
}

std::string bar(double part, std::size_t columns) {
  const auto full = static_cast<std::size_t>(std::clamp(part, 0.0, 1.0) * static_cast<double>(columns));  // full only at 100 %
  return "[" + std::string(full, '#') + std::string(columns - full, '.') + "]";
}

/// Text at both ends of a line.
std::string spread(const std::string& left, const std::string& right, std::size_t width) {
  if (width == 0) return right.empty() ? left : left + "  " + right;
  const std::size_t used = columns_of(left) + columns_of(right);
  if (used + 1 > width) return cut_to(left, width);
  return left + std::string(width - used, ' ') + right;
}

std::string state_colour(const std::string& state) {
  if (state == "ok" || state == "ready") return "32";
  if (state == "failed" || state == "unkillable") return "31;1";
  return "33";
}

/// The worker that the device waits for comes first; one that is not needed is omitted.
std::vector<json> workers_in_order_of_interest(const json& now) {
  const json& all = now.at("status").at("workers");
  std::vector<json> workers(all.begin(), all.end());
  std::erase_if(workers, is_not_needed);
  const json awaited = now.value("waits_for_worker", json());
  std::ranges::stable_partition(workers, [&](const json& w) { return w.at("id") == awaited; });
  return workers;
}

std::vector<std::string> worker_lines(const top_looks& looks, const std::vector<json>& workers, work_kind kind,
                                      std::size_t width) {
  // Depends on the width only: a column must not appear and vanish with the names of samples.
  const bool with_memory = width == 0 || width >= narrowest_with_memory;
  // A loader host does not report how long a worker has been working on a sample.
  const bool of_batch = kind == work_kind::batches && std::ranges::any_of(workers, [](const json& w) {
    return w.at("current_sample").is_string() && !w.value("current_work_seconds", json()).is_number();
  });
  const char* const time = kind == work_kind::batches && !of_batch ? "current_work_seconds" : "current_sample_seconds";
  std::vector<std::vector<std::string>> rows;
  for (const json& w : workers) {
    std::string state = is_over_memory(w) ? state_of(w) : text_of(w.at("state"));
    if (w.at("next_restart_seconds").is_number())
      state += " " + time_text(w.at("next_restart_seconds").get<double>());
    const bool busy = !w.at("current_sample").is_null();
    const bool died = !busy && !w.at("last_death").is_null() && w.at("pid").is_null();
    rows.push_back({worker_cell(w), state, text_of(w.at("pid")), text_of(w.at("restarts")),
                    worker_rate(looks.before, looks.now, w),
                    busy ? time_text(number_in(w, time)) : "-",
                    busy   ? work_of(w, kind)
                    : died ? ending_of(w.at("last_death"))
                           : "-"});
    if (with_memory)
      rows.back().insert(rows.back().begin() + memory_column,
                         bytes_for_people(static_cast<std::uint64_t>(number_in(w, "rss_bytes"))));
  }
  std::vector<table_column> columns{{"worker"},
                                    {"state", column_side::left, true},
                                    {"pid", column_side::right},
                                    {"restarts", column_side::right},
                                    {fmt::format("{}/s", words_for(kind).items), column_side::right},
                                    {of_batch ? "batch for" : "for", column_side::right},
                                    {kind == work_kind::batches ? words_for(kind).doing : words_for(kind).item, column_side::left, true, false, true}};
  if (with_memory) columns.insert(columns.begin() + memory_column, {"memory", column_side::right});
  return lines_in(text_table(columns, rows, width));
}

/// Shows the time left as `status` does: from a mean over 10 s, which a single death hardly changes.
std::string progress_text(const json& status, std::size_t width) {
  const bool of_batches = kind_of(status) == work_kind::batches;
  const double expected = number_in(status, of_batches ? "batches_expected" : "samples_expected");
  if (expected <= 0) return of_batches ? "unknown: the dataset has no length" : "unknown: no worker has described the dataset yet";
  const double before = of_batches ? 0 : number_in(status, "samples_before");
  const double done = number_in(status, of_batches ? "batches_done" : "samples_done");
  const double part = std::min(1.0, (before + done) / (before + expected));
  std::string text = fmt::format("{} {:>5}{}", bar(part, width >= 120 ? 40 : 16), percent_of(part), of_batches ? " of this epoch" : "");
  if (const std::string left = time_left_of(status); !left.empty()) text += "  " + left;
  return text;
}

std::string awaited_line(const json& now, std::size_t width, bool colours) {
  const std::string stall = stall_for_people(now.at("status"));
  if (stall.empty()) return fitted("waits    for " + text_of(now.at("waits_for")), width);
  const std::string line = fitted("stalled  " + stall, width);
  return colours ? "\x1b[31;1m" + line + "\x1b[0m" : line;
}

/// What `penstock why` says first, on several lines if workers keep half of the `rows`. An empty line while the stream is
/// stalled, paused or stopping, which other lines say.
std::vector<std::string> limit_lines(const json& s, std::size_t width, std::size_t rows) {
  const std::string state = s.at("state");
  const std::string verdict = s.value("verdict", "");
  const bool is_other = s.value("stalled", json()).is_object() || state == "paused" || state == "stopping";
  if (is_other || verdict.empty()) return {""};
  const std::string label = "limit    ";
  std::vector<std::string> lines = lines_in(wrapped(label + verdict, width, label_columns));
  return (lines.size() - 1) * 2 <= rows ? lines : std::vector{label + verdict};
}

/// Adds six lines below the head.
void add_stream(std::vector<std::string>& lines, const json& now, const top_rates& r, const top_rates& mean,
                const std::string& awaited, std::size_t width) {
  const json& s = now.at("status");
  const auto add = [&](const std::string& line) { lines.push_back(fitted(line, width)); };
  add(fmt::format("{} samples/s  {} batches/s  {}/s  (mean of {}: {})", text_of_rate(r, r.samples), text_of_rate(r, r.batches),
                  r.known ? bytes_for_people(static_cast<std::uint64_t>(r.bytes)) : "-", time_text(mean.seconds),
                  text_of_rate(mean, mean.samples)));
  const json& gpu = s.at("gpu");
  const bool paused = s.at("state") == "paused";
  const json share = now.value("waited", json());  // the same figure as in the sentence about the limit
  const std::string waited = share.is_number() ? fmt::format("; the consumer waited {:.0f} % of the time", share.get<double>() * 100) : "";
  add(fmt::format("device   {} ({}){}", text_of(gpu.at("state")), text_of(gpu.at("name")), paused ? "; the stream is paused" : waited));
  lines.push_back(awaited);
  const json& b = now.at("batches");
  add(fmt::format("batches  loading {}  loaded {}  uploading {}  ready {}  in use {}",
                  text_of(b.at("loading")), text_of(b.at("loaded")), text_of(b.at("uploading")),
                  text_of(b.at("ready")), text_of(b.at("in_use"))));
  add("progress " + progress_text(s, width));
  const bool known = number_in(s, "samples_expected") > 0;
  const bool resumed = number_in(s, "samples_before") > 0;
  add(fmt::format("samples  {}{} delivered, {} failed, {} quarantined{}", text_of(s.at("samples_delivered")),
                  known ? " of " + text_of(s.at("samples_expected")) : "", text_of(s.at("failed")),
                  text_of(s.at("quarantined")), resumed ? "; " + text_of(s.at("samples_before")) + " before this run" : ""));
}

/// Adds as many lines for a pool as add_stream() does: the rate, all jobs, and the functions with the most unfinished jobs.
void add_pool(std::vector<std::string>& lines, const json& s, const top_rates& r, const top_rates& mean,
              const std::string& awaited, std::size_t width) {
  const auto add = [&](const std::string& line) { lines.push_back(fitted(line, width)); };
  add(fmt::format("{} jobs/s  (mean of {}: {})", text_of_rate(r, r.jobs), time_text(mean.seconds), text_of_rate(mean, mean.jobs)));
  add(jobs_for_people(s));
  lines.push_back(awaited);
  const json all = functions_shown(s.at("jobs"));
  std::vector<json> functions(all.begin(), all.end());
  std::ranges::stable_sort(functions, std::ranges::greater(),
                           [](const json& f) { return number_in(f, "waiting") + number_in(f, "running"); });
  for (std::size_t i = 0; i < functions_listed; ++i) {
    if (i >= functions.size()) {
      lines.emplace_back();
    } else if (i + 1 == functions_listed && functions.size() > functions_listed) {
      add(fmt::format("  and {} other functions", functions.size() - i));
    } else {
      const json& f = functions[i];
      add(fmt::format("  {}  {} waiting, {} running, {} ok, {} failed", text_of(f.at("name")),
                      text_of(f.at("waiting")), text_of(f.at("running")), text_of(f.at("ok")),
                      text_of(f.at("failed"))));
    }
  }
}

/// Adds as many lines for a data loader as add_stream() does.
void add_loader(std::vector<std::string>& lines, const json& s, const top_rates& r, const top_rates& mean, const std::string& awaited, std::size_t width) {
  const auto add = [&](const std::string& line) { lines.push_back(fitted(line, width)); };
  add(fmt::format("{} samples/s  {} batches/s  (mean of {}: {})", text_of_rate(r, r.samples), text_of_rate(r, r.batches),
                  time_text(mean.seconds), text_of_rate(mean, mean.samples)));
  add(jobs_for_people(s));
  lines.push_back(awaited);
  add("progress " + progress_text(s, width));
  add(fmt::format("samples  {} delivered", text_of(s.at("samples_delivered"))));
  lines.emplace_back();
}

/// The loader hosts, on at most a third of the lines that are left for workers.
std::vector<std::string> hosts_of(const json& now, screen_size size) {
  return host_lines(now.at("status"), rows_for_workers(size) / 3, size.columns);
}

/// The section of the hosts, with its blank line; empty without hosts.
std::size_t lines_for_hosts(const json& now, screen_size size) {
  const std::size_t lines = hosts_of(now, size).size();
  return lines == 0 ? 0 : lines + 1;
}

std::vector<std::string> limit_of(const json& now, screen_size size) {
  return limit_lines(now.at("status"), size.columns, rows_for_workers(size, lines_for_hosts(now, size)));
}

}  // namespace

std::size_t workers_shown(const json& now) {
  return workers_in_order_of_interest(now).size();
}

std::size_t rows_for_workers(screen_size size, std::size_t more_lines) noexcept {
  const std::size_t around = lines_around_workers + more_lines;
  return size.rows > around ? size.rows - around : 1;
}

std::size_t more_lines(const json& now, screen_size size) {
  return lines_for_hosts(now, size) + limit_of(now, size).size() - 1;
}

std::size_t last_first_worker(std::size_t workers, screen_size size, std::size_t more_lines) noexcept {
  return workers - std::min(workers, rows_for_workers(size, more_lines));
}

std::vector<std::string> top_screen(const top_looks& looks, const std::string& event, screen_size size,
                                    std::size_t first_worker, bool colours) {
  const std::size_t width = size.columns;
  const json& now = looks.now;
  const json& s = now.at("status");
  const bool spans = spans_time(looks.before, now);
  const top_rates r = spans ? rates_between(looks.before, now) : rates_reported(s);
  const top_rates mean = spans ? rates_between(looks.long_before, now) : r;
  const std::string state = text_of(s.at("state"));
  std::vector<std::string> lines;
  const auto add = [&](const std::string& line) { lines.push_back(fitted(line, width)); };
  const auto in_colour = [&](const std::string& code, const std::string& text) {
    return colours ? "\x1b[" + code + "m" + text + "\x1b[0m" : text;
  };

  std::string head =
      spread(fmt::format("penstock {}  {}", text_of(s.at("session")), state),
             kind_of(s) == work_kind::jobs ? fmt::format("pid {}", text_of(s.at("pid")))
                        : fmt::format("epoch {}  pid {}", text_of(s.at("epoch")), text_of(s.at("pid"))),
             width);
  if (const std::size_t at = head.find("  " + state); colours && at != std::string::npos)
    head = in_colour("1", head.substr(0, at)) + "  " + in_colour(state_colour(state), state) +
           head.substr(at + 2 + state.size());
  lines.push_back(head);
  const std::string awaited = awaited_line(now, width, colours);
  switch (kind_of(s)) {
    case work_kind::samples: add_stream(lines, now, r, mean, awaited, width); break;
    case work_kind::jobs: add_pool(lines, s, r, mean, awaited, width); break;
    case work_kind::batches: add_loader(lines, s, r, mean, awaited, width); break;
  }
  const std::vector<json> workers = workers_in_order_of_interest(now);
  for (const std::string& line : limit_of(now, size)) add(line);
  add("");
  const std::vector<std::string> hosts = hosts_of(now, size);
  for (const std::string& line : hosts) add(line);
  if (!hosts.empty()) add("");

  const std::size_t more = more_lines(now, size);
  const std::vector<std::string> table = worker_lines(looks, workers, kind_of(s), width);
  const std::size_t first = std::min(first_worker, last_first_worker(workers.size(), size, more));
  const std::size_t end = std::min(workers.size(), first + rows_for_workers(size, more));
  const std::string& head_of_table = table.front();
  lines.push_back(in_colour("7", width == 0 ? head_of_table : padded(head_of_table, width)));
  for (std::size_t i = first; i < end; ++i) {
    std::string line = fitted(table[i + 1], width);
    const std::string worker_state = text_of(workers[i].at("state"));
    if (const std::size_t at = line.find(worker_state, 8); colours && at != std::string::npos)
      line.replace(at, worker_state.size(), in_colour(state_colour(worker_state), worker_state));
    lines.push_back(line);
  }
  if (end - first < workers.size())
    add(fmt::format("workers {} to {} of {}: j and k scroll", first + 1, end, workers.size()));
  std::vector<std::string> last = lines_in(wrapped(event, width, label_columns));
  if (last.empty() || lines.size() + last.size() + 1 > size.rows) last = {fitted(event, width)};
  while (lines.size() + last.size() + 1 < size.rows) lines.emplace_back();
  if (lines.size() + 2 > size.rows) lines.resize(size.rows > 2 ? size.rows - 2 : 0);
  lines.insert(lines.end(), last.begin(), last.end());
  const bool starred =
      std::ranges::any_of(workers, [](const json& w) { return w.value("sacrificial", false); });
  lines.push_back(
      starred ? fitted(star_explained, width)
              : in_colour("2", fitted("q quit   p pause/resume   j k scroll   penstock help top", width)));
  return lines;
}

}  // namespace penstock::cli
