#include "tools/penstock/control/stop_cost.hpp"

#include "runtime/base/death_words.hpp"
#include "runtime/base/one_line.hpp"
#include "runtime/base/shell_words.hpp"
#include "runtime/base/text.hpp"
#include "tools/penstock/control/written_files.hpp"
#include "tools/penstock/past/past_session.hpp"
#include "tools/penstock/watch/death_tables.hpp"
#include "tools/penstock/watch/status_words.hpp"

#include <fmt/core.h>

namespace penstock::cli {

using json = nlohmann::ordered_json;

namespace {

constexpr nanoseconds told_after = std::chrono::seconds(1);  // session_end::wait_and_tell() names slower processes and their work

}  // namespace

stop_cost::stop_cost(const json& ended, const json& events, const std::string& ends) : id_(ended.value("id", "")) {
  for (const json& e : events) {
    if (e.value("kind", "") == "stopping") killed_.clear();  // earlier deaths belong to a `drain` or a `scale`
    if (!e.contains("death") || !was_killed_at_stop(e.at("death"))) continue;
    const json worker = e.value("worker", json());
    const json pid = e.at("death").value("pid", json());
    const nanoseconds ignored(static_cast<std::int64_t>(e.at("death").at("ignored_stop_seconds").get<double>() * 1e9));
    const bool is_told = worker.is_number() && ignored > told_after;
    without_told_work_ = is_told ? fmt::format("worker {} (pid {}) {}", worker.dump(), pid.dump(), killed_at_stop_in_words(ignored)) : e.value("text", "");
    killed_.push_back({{"target", worker.is_number() ? "worker/" + worker.dump() : "gpu"},
                       {"pid", pid},
                       {"text", e.value("text", "")}});
  }
  const bool is_run = ends != "session" && ended.value("config_file", json()).is_string() && !ended.value("jobs", json()).is_object();
  if (is_run && ended.value("outcome", "") == "stopped") position_saved_ = ended.value("files", json::object()).contains("state");
  if (ends == "parent") saver_ = "launch";
  if (is_run) resume_ = how_to_resume(ended);
}

json stop_cost::as_json() const {
  return {{"killed", killed_}, {"position_saved", position_saved_}};
}

std::string stop_cost::killed_for_people() const {
  if (killed_.size() == 1) return one_line(without_told_work_) + "\n";
  if (killed_.size() > 1) return fmt::format("{} processes were killed: `penstock deaths --session {}` lists them\n", killed_.size(), id_);
  return {};
}

std::string position_not_saved(std::string_view saver) {
  return fmt::format("its position is lost; `penstock {} --state FILE` keeps it next time", saver);
}

std::string stop_cost::position_for_people() const {
  if (position_saved_ != false) return {};
  return position_not_saved(saver_) + "\n";
}

std::string stop_cost::resume_for_people() const {
  return resume_.empty() ? "" : resume_ + "\n";
}

std::string how_to_resume(const json& ended) {
  const json config = ended.value("config_file", json());
  const json state = ended.value("files", json::object()).value("state", json());
  if (ended.value("outcome", "") != "died" || !config.is_string() || !state.is_string()) return {};
  if (was_written_later(state.get<std::string>(), ended.value("ended", json()))) return {};
  if (!ended.value("group", json()).is_null()) return "it died; the command that started the group continues from that state";
  const std::vector<std::string> command{"penstock", "run", config.get<std::string>(), "--state", state.get<std::string>()};
  return fmt::format("it died; `{}`, with the other options of the run, continues from that state", printable(shell_words(command)));
}

stop_cost read_stop_cost(const std::filesystem::path& record, const std::string& ends) {
  const auto past = record.empty() ? result<past_session>(tl::unexpect, failure{}) : read_past(record);
  if (!past) return {};
  json ended{{"id", record.stem().string()}};
  ended.update(past->summary());
  const json events = past->answer({{"verb", "events"}});
  return {ended, events.at("result").at("events"), ends};
}

}  // namespace penstock::cli
