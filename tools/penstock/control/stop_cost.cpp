#include "tools/penstock/control/stop_cost.hpp"

#include "runtime/base/text.hpp"
#include "tools/penstock/watch/session_tables.hpp"

#include <fmt/core.h>

namespace penstock::cli {

using json = nlohmann::ordered_json;

stop_cost::stop_cost(const json& ended, const json& events, const std::string& ends) : id_(ended.value("id", "")) {
  for (const json& e : events) {
    if (e.value("kind", "") == "stopping") killed_.clear();  // earlier deaths belong to a `drain` or a `scale`
    if (!e.contains("death") || !was_killed_at_stop(e.at("death"))) continue;
    const json worker = e.value("worker", json());
    killed_.push_back({{"target", worker.is_number() ? "worker/" + worker.dump() : "gpu"},
                       {"pid", e.at("death").value("pid", json())},
                       {"text", e.value("text", "")}});
  }
  const bool is_run = ends != "session" && ended.value("config_file", json()).is_string() && !ended.value("jobs", json()).is_object();
  if (is_run && ended.value("outcome", "") == "stopped") position_saved_ = ended.value("files", json::object()).contains("state");
}

json stop_cost::as_json() const {
  return {{"killed", killed_}, {"position_saved", position_saved_}};
}

std::string stop_cost::for_people() const {
  std::string text;
  if (killed_.size() == 1) text = printable(killed_.front().at("text").get<std::string>()) + "\n";
  if (killed_.size() > 1) text = fmt::format("{} processes were killed: `penstock deaths --session {}` lists them\n", killed_.size(), id_);
  if (position_saved_ == false) text += "its position was not saved; with `penstock run --state FILE` a later run continues there\n";
  return text;
}

}  // namespace penstock::cli
