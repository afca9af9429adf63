#include "tools/penstock/control/slow_stop.hpp"

#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "tools/penstock/text_table.hpp"
#include "tools/penstock/watch/status_words.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <cmath>

namespace penstock::cli {
namespace {

using json = nlohmann::ordered_json;

/// When the session will kill the process, and how to kill it earlier.
std::string end_of_patience(const json& status) {
  const json left = status.value("killed_in_seconds", json());
  if (!left.is_number()) return "; it will be killed if it does not end in time";
  if (left.get<double>() <= 0) return "; it is being killed";
  return fmt::format("; it will be killed in {:.0f} s if it does not end; `penstock stop --now` kills it at once", std::ceil(left.get<double>()));
}

std::string words_about(const std::string& name, const json& worker, const json& status) {
  const std::string killed_later = end_of_patience(status);
  const json sample = worker.value("current_sample", json());
  if (!sample.is_string() || !worker.value("current_sample_seconds", json()).is_number())
    return fmt::format("{} (pid {}), which has not exited yet{}", name, text_of(worker.at("pid")), killed_later);
  const json batch = worker.value("current_seq", json());
  const std::string where = batch.is_number() ? fmt::format(" (batch {} of epoch {})", text_of(batch), text_of(worker.at("current_epoch"))) : "";
  return fmt::format("{} (pid {}), which has been working on {}{}{}", name, text_of(worker.at("pid")),
                     printable(work_since(worker, kind_of(status))), where, killed_later);
}

/// Whether the owner has its own process, which has been started and has not ended.
bool has_owner(const json& gpu) {
  const std::string state = gpu.value("state", "");
  return gpu.value("placement", "") == "process" && gpu.value("pid", json()).is_number() && state != "stopped" &&
         state != "failed";
}

}  // namespace

std::vector<awaited_end> awaited_ends(const json& status) {
  std::vector<awaited_end> all;
  for (const json& w : status.value("workers", json::array())) {
    if (!w.value("pid", json()).is_number()) continue;
    const std::string name = "worker/" + text_of(w.at("id"));
    all.push_back({name, words_about(name, w, status)});
  }
  if (!all.empty()) return all;
  if (const json gpu = status.value("gpu", json::object()); has_owner(gpu)) {
    return {{"gpu", fmt::format("the GPU owner (pid {}), which is waiting for its sink to finish{}", text_of(gpu.at("pid")), end_of_patience(status))}};
  }
  const json group = status.value("group", json());
  if (group.is_object() && group.value("waits_for", json()).is_string())
    return {{"group", "the other ranks: " + printable(group.at("waits_for").get<std::string>())}};
  return {{"program", fmt::format("its program (pid {}), which has not noticed the stop: it asks for no {}, and has not closed the {}",
                                  text_of(status.value("pid", json())), kind_of(status) == work_kind::jobs ? "job" : "batch", words_for(kind_of(status)).run)}};
}

std::string held_up_by(const json& status) {
  constexpr double worth_telling = 1;
  std::string text;
  for (const json& w : status.value("workers", json::array())) {
    const json seconds = w.value("current_sample_seconds", json());
    if (!seconds.is_number() || seconds.get<double>() < worth_telling || !w.value("pid", json()).is_number()) continue;
    text += "waiting for " + words_about("worker/" + text_of(w.at("id")), w, status) + "\n";
  }
  return text;
}

json stopping_for(const json& status) {
  if (status.value("state", "") != "stopping") return nullptr;
  json all = json::array();
  for (const awaited_end& one : awaited_ends(status)) all.push_back({{"target", one.what}, {"text", one.words}});
  return all;
}

std::string stopping_in_words(const json& stopping, std::size_t width) {
  std::string text;
  for (const json& one : stopping) text += wrapped("waiting for " + one.at("text").get<std::string>(), width, 2) + "\n";
  return text;
}

}  // namespace penstock::cli
