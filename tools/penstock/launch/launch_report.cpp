#include "tools/penstock/launch/launch_report.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/base/file_text.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/group/this_process.hpp"
#include "runtime/process/cores.hpp"
#include "runtime/telemetry/report_json.hpp"
#include "tools/penstock/output.hpp"
#include "tools/penstock/text_table.hpp"


#include <algorithm>
#include <chrono>

namespace penstock::cli {
namespace {

double seconds_of(nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

nlohmann::ordered_json code_of(const std::optional<int>& code) {
  return code ? nlohmann::ordered_json(*code) : nlohmann::ordered_json();
}

nlohmann::ordered_json signal_of(const std::optional<int>& signal) {
  return signal ? nlohmann::ordered_json(process::signal_name(*signal)) : nlohmann::ordered_json();
}

nlohmann::ordered_json pid_of(pid_t pid) {
  return pid > 0 ? nlohmann::ordered_json(pid) : nlohmann::ordered_json();
}

nlohmann::ordered_json earlier_of(const rank_facts& rank) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const ended_process& one : rank.earlier) {
    all.push_back({{"pid", pid_of(one.pid)}, {"exit", code_of(one.code)}, {"signal", signal_of(one.signal)}, {"end", one.end}, {"seconds", seconds_of(one.lived)}});
  }
  return all;
}

/// "exit code 0; before: SIGSEGV, SIGKILL".
std::string end_cell(const rank_facts& rank) {
  constexpr std::size_t ends_shown = 3;
  std::string before;
  for (std::size_t i = rank.earlier.size() - std::min(ends_shown, rank.earlier.size()); i < rank.earlier.size(); ++i)
    before += (before.empty() ? (rank.earlier.size() > ends_shown ? "; before: .., " : "; before: ") : ", ") + rank.earlier[i].end;
  return rank.end + before;
}

/// The samples that a session has delivered. Its totals cover only its last process; the entries of its epochs cover all
/// of its processes, and what earlier runs have delivered of these epochs.
std::optional<std::uint64_t> samples_of(const nlohmann::ordered_json& rank, bool restarted) {
  const auto totals = rank.find("totals");
  if (totals == rank.end() || !totals->is_object() || !totals->contains("samples")) return std::nullopt;
  if (!restarted) return totals->value("samples", std::uint64_t{0});
  std::uint64_t sum = 0;
  for (const auto& epoch : rank.at("epochs")) sum += epoch.value("delivered", std::uint64_t{0});
  return sum;
}

}  // namespace

const char* name_of(launch_outcome outcome) {
  switch (outcome) {
    case launch_outcome::finished: return "finished";
    case launch_outcome::stopped: return "stopped";
    case launch_outcome::failed: return "failed";
  }
  return "";
}

std::string cause_sentence(const launch_result& r) {
  if (!r.cause) return {};
  const std::string who =
      r.cause->pid < 0 ? "could not be started" : fmt::format("(pid {}) ended", r.cause->pid);
  return fmt::format("rank {} {}: {}", r.cause->rank, who, r.cause->text);
}

void explain_cause(launch_result& r, const session_work& sessions) {
  if (!r.cause) return;
  const reported_cause why = cause_in(text_of_file(report_path(sessions, r.cause->rank)));
  if (why.text.empty()) return;
  std::string text = why.text;
  if (!why.rank || *why.rank >= r.ranks.size() || *why.rank == r.cause->rank) {
    r.cause->text += ": " + text;
    return;
  }
  const rank_facts& other = r.ranks[*why.rank];
  // Say how that rank ended, unless its end was a consequence.
  if (other.pid == why.pid && other.code == exit_failed) text = other.end + ": " + text;
  r.cause = launch_cause{*why.rank, why.pid, std::move(text)};
}

nlohmann::ordered_json group_report(const launch_work& work, const launch_result& r,
                                    const session_work* sessions) {
  using nlohmann::ordered_json;
  ordered_json ranks = ordered_json::array();
  for (std::uint32_t i = 0; i < r.ranks.size(); ++i) {
    const rank_facts& rank = r.ranks[i];
    const rank_place& place = work.places[i];
    ordered_json one{
        {"rank", i},
        {"world_size", r.ranks.size()},
        {"pid", pid_of(rank.pid)},
        {"gpu", place.gpu ? ordered_json(place.gpu->uuid) : ordered_json()},
        {"cores", place.cores.empty() ? ordered_json() : ordered_json(process::core_list(place.cores))},
        {"starts", rank.starts},
        {"exit", code_of(rank.code)},
        {"signal", signal_of(rank.signal)},
        {"end", rank.end},
        {"left_behind", rank.left_behind},
        {"seconds", seconds_of(rank.ended - rank.began)},
        {"earlier", earlier_of(rank)},
        {"last_lines", rank.code == 0 ? "" : printable(r.last_lines[i])}};
    const auto count = static_cast<std::uint32_t>(r.ranks.size());
    if (sessions != nullptr)
      one = rank_report(text_of_file(report_path(*sessions, i)), i, count, std::move(one));
    if (!r.histories.empty()) r.histories[i].complete(one);
    ranks.push_back(std::move(one));
  }
  ordered_json all{{"schema", "penstock.group/1"},  {"group", work.names.group},
                   {"outcome", name_of(r.outcome)}, {"error", nullptr},
                   {"error_kind", nullptr},         {"first_cause", nullptr},
                   {"restarts", r.restarts},        {"ranks", std::move(ranks)}};
  // `penstock stop` and --batches: each rank has exited with 0, as `run` does.
  const bool cut_short = std::ranges::any_of(
      all["ranks"], [](const ordered_json& rank) { return rank.value("outcome", "") == "stopped"; });
  if (r.outcome == launch_outcome::finished && cut_short) all["outcome"] = name_of(launch_outcome::stopped);
  if (r.cause) {
    all["error"] = cause_sentence(r);
    all["error_kind"] = "rank_failed";
    all["first_cause"] = {{"rank", r.cause->rank},
                          {"host", group::host_name()},
                          {"pid", pid_of(r.cause->pid)},
                          {"cause", r.cause->text}};
  }
  return all;
}

std::string rank_table(const launch_work& work, const launch_result& r, const nlohmann::ordered_json& report, std::size_t width) {
  std::vector<std::vector<std::string>> rows;
  bool with_samples = false;
  for (std::uint32_t i = 0; i < r.ranks.size(); ++i) {
    const rank_facts& rank = r.ranks[i];
    const rank_place& place = work.places[i];
    rows.push_back({std::to_string(i), rank.pid > 0 ? std::to_string(rank.pid) : "-",
                    place.gpu ? fmt::format("{} {}", place.gpu->ordinal, place.gpu->name) : "host",
                    place.cores.empty() ? "all" : process::core_list(place.cores), std::to_string(rank.starts),
                    duration_for_people(rank.ended - rank.began)});
    const auto samples = samples_of(report.at("ranks").at(i), rank.starts > 1);
    with_samples = with_samples || samples;
    rows.back().push_back(samples ? std::to_string(*samples) : "-");
    rows.back().push_back(end_cell(rank));
  }
  table_column samples{"SAMPLES", column_side::right};
  samples.shown = with_samples;  // unknown if the ranks are programs
  return text_table({{"RANK", column_side::right},
                     {"PID", column_side::right},
                     {"GPU", column_side::left, true},
                     {"CORES"},
                     {"STARTS", column_side::right},
                     {"TIME", column_side::right},
                     samples,
                     {"ENDED"}},
                    rows, width);
}

std::string digests_for_people(const nlohmann::ordered_json& report) {
  std::string text;
  for (const auto& rank : report.at("ranks")) {
    for (const auto& epoch : rank.value("epochs", nlohmann::ordered_json::array())) {
      const auto digest = epoch.find("digest");
      if (digest == epoch.end() || !digest->is_string()) continue;
      text += fmt::format("rank {}, epoch {}{}: {}, digest {}\n", rank.at("rank").dump(), epoch.at("epoch").dump(),
                          epoch.value("complete", false) ? "" : " (incomplete)",
                          counted(epoch.value("delivered", std::uint64_t{0}), "sample"), digest->get<std::string>());
    }
  }
  return text;
}

}  // namespace penstock::cli
