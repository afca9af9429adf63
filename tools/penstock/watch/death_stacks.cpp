#include "tools/penstock/watch/death_stacks.hpp"

#include "runtime/process/process_facts.hpp"
#include "tools/penstock/watch/death_tables.hpp"
#include "tools/penstock/watch/status_words.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <set>

namespace penstock::cli {

using json = nlohmann::ordered_json;

namespace {

struct shared_stack {
  std::string ending;
  std::string wait_channel;
  std::vector<std::string> of_python;
  std::vector<std::string> native;
  std::vector<std::string> workers{};  // "worker/0 incarnation 1"

  [[nodiscard]] bool is_same(const shared_stack& other) const {
    return ending == other.ending && wait_channel == other.wait_channel && of_python == other.of_python && native == other.native;
  }
};

shared_stack stack_of(const json& d) {
  shared_stack s{ending_of(d), d.at("wait_channel").is_null() ? "" : text_of(d.at("wait_channel")), python_frames_in(text_of(d.at("last_output"))),
                 d.at("stack").get<std::vector<std::string>>()};
  if (!s.of_python.empty()) s.native = frames_before_interpreter(std::move(s.native));
  return s;
}

std::vector<shared_stack> stacks_of(const json& deaths) {
  std::vector<shared_stack> all;
  for (const json& d : deaths) {
    if (!d.contains("worker")) continue;  // owners write no stacks
    shared_stack one = stack_of(d);
    auto same = std::ranges::find_if(all, [&](const shared_stack& known) { return known.is_same(one); });
    if (same == all.end()) same = all.insert(all.end(), std::move(one));
    same->workers.push_back(fmt::format("{} incarnation {}", worker_name(d), d.at("incarnation").dump()));
  }
  return all;
}

std::map<std::string, std::string> names_in(const std::vector<shared_stack>& stacks, const frame_namer& name) {
  std::set<std::string> distinct;
  for (const shared_stack& s : stacks) distinct.insert(s.native.begin(), s.native.end());
  std::map<std::string, std::string> names;
  if (distinct.empty()) return names;
  const std::vector<std::string> frames(distinct.begin(), distinct.end());
  const std::vector<std::string> named = name(frames);
  for (std::size_t i = 0; i < frames.size(); ++i) names[frames[i]] = named[i];
  return names;
}

std::string heading_of(const shared_stack& s) {
  std::string who;
  for (const std::string& worker : s.workers) who += (who.empty() ? "" : ", ") + worker;
  return fmt::format("\n{}, {}{}:\n", who, s.workers.size() == 1 ? "" : "each ", s.ending);
}

}  // namespace

std::string stacks_for_people(const json& deaths, const frame_namer& name) {
  const std::vector<shared_stack> stacks = stacks_of(deaths);
  const std::map<std::string, std::string> names = names_in(stacks, name);
  std::string out;
  for (const shared_stack& s : stacks) {
    out += heading_of(s);
    if (!s.wait_channel.empty()) out += "  it was " + (s.wait_channel == process::suspended_channel ? "suspended" : s.wait_channel) + "\n";
    for (const std::string& frame : s.of_python) out += "  " + frame + "\n";
    if (!s.of_python.empty() && !s.native.empty()) out += "  in native code (--json also has the interpreter's frames):\n";
    for (const std::string& frame : s.native) out += (s.of_python.empty() ? "  " : "    ") + names.at(frame) + "\n";
    if (s.native.empty() && s.of_python.empty()) out += "  (no stack was written)\n";
  }
  return out;
}

}  // namespace penstock::cli
