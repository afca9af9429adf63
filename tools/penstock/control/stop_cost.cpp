#include "tools/penstock/control/stop_cost.hpp"

#include "runtime/base/text.hpp"

#include <fmt/core.h>

namespace penstock::cli {
namespace {

using json = nlohmann::ordered_json;

bool was_killed_by_stop(const json& event) {
  const json death = event.value("death", json());
  return death.is_object() && death.value("ignored_stop_seconds", json()).is_number();
}

}  // namespace

stop_cost::stop_cost(const json& ended, const json& events, const std::string& ends) : id_(ended.value("id", "")) {
  for (const json& e : events) {
    if (!was_killed_by_stop(e)) continue;
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
  if (position_saved_ == false) text += "its position was saved nowhere; with `penstock run --state FILE` a later run continues there\n";
  return text;
}

}  // namespace penstock::cli
