#include "tools/penstock/watch/describe_sample.hpp"

#include "tools/penstock/output.hpp"
#include "tools/penstock/watch/death_stacks.hpp"
#include "tools/penstock/watch/event_reader.hpp"
#include "tools/penstock/watch/sample_history.hpp"
#include "tools/penstock/watch/stack_names.hpp"
#include "tools/penstock/watch/status_words.hpp"

#include <nlohmann/json.hpp>
#include <unistd.h>

#include <filesystem>

namespace penstock::cli {
namespace {

using json = nlohmann::ordered_json;

/// Whether the session still remembers that the batch was delivered. A record remembers no batches.
bool is_released(const std::filesystem::path& socket, const json& batch) {
  for (std::uint64_t after = 0;;) {
    const auto answer = ask(socket, {{"verb", "trace"}, {"after", after}}, look_deadline);
    if (!answer || !answer->value("ok", false)) return false;
    const json& page = answer->at("result");
    for (const json& one : page.at("batches")) {
      if (is_same_batch(one, batch)) return true;
    }
    if (page.at("batches").empty()) return false;
    after = page.at("last").get<std::uint64_t>();
  }
}

}  // namespace

int describe_sample(const session_choice& choice, const std::string& sample, bool all_frames) {
  const chosen_socket socket = choose_to_show(choice);
  if (socket.refused != exit_ok) return socket.refused;
  const session_answer status = request(choice, socket.path, {{"verb", "status"}});
  if (status.refused != exit_ok) return status.refused;
  const session_answer list = request(choice, socket.path, {{"verb", "quarantine"}, {"act", "list"}});
  if (list.refused != exit_ok) return list.refused;
  json events = json::array();
  const int refused = read_events(choice, socket.path, false, [&](const json& e) { events.push_back(e); });
  if (refused != exit_ok) return refused;
  json about = history_of(sample, status.result, events, list.result);
  if (about.at("loading").empty() && about.at("events").empty() && about.at("quarantine").is_null()) {
    return no_such_target(choice, nothing_recorded_of(sample, status.result, events));
  }
  if (json& batch = about["batch"]; batch.is_object() && batch.at("delivered") == false) batch["delivered"] = is_released(socket.path, batch);
  if (!choice.as_json) {
    about["stacks"] = stacks_by_attempt(deaths_in_history(about), name_frames, all_frames ? frames_shown::all : frames_shown::of_user);
    print_raw(history_for_people(about, terminal_width(STDOUT_FILENO)));
    return exit_ok;
  }
  json all{{"schema", "penstock.describe/1"}};
  for (const char* key : {"session", "state"}) all[key] = status.result.at(key);
  all["of"] = words_for(kind_of(status.result)).name;
  all.update(about);
  print_json(all);
  return exit_ok;
}

}  // namespace penstock::cli
