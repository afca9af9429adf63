#include "tools/penstock/watch/death_stacks.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/base/death_words.hpp"
#include "runtime/process/process_facts.hpp"
#include "tools/penstock/watch/death_tables.hpp"
#include "tools/penstock/watch/status_words.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <ranges>
#include <set>
#include <string_view>
#include <utility>

namespace penstock::cli {

using json = nlohmann::ordered_json;

namespace {

struct shared_stack {
  std::string ending;
  std::string wait_channel;
  std::vector<std::string> of_python;
  std::vector<std::string> native;
  std::vector<std::string> workers{};   // "worker/0 incarnation 1"
  std::vector<std::string> attempts{};  // "1"

  [[nodiscard]] bool is_same(const shared_stack& other) const {
    return ending == other.ending && wait_channel == other.wait_channel && of_python == other.of_python && native == other.native;
  }
};

shared_stack stack_of(const json& d, frames_shown which) {
  shared_stack s{ending_of(d), d.at("wait_channel").is_null() ? "" : text_of(d.at("wait_channel")), python_frames_in(text_of(d.at("last_output"))),
                 d.at("stack").get<std::vector<std::string>>()};
  if (!s.of_python.empty() && which != frames_shown::all) s.native = frames_before_interpreter(std::move(s.native));
  return s;
}

std::vector<shared_stack> stacks_of(const json& deaths, frames_shown which) {
  std::vector<shared_stack> all;
  for (const json& d : deaths) {
    if (!d.contains("worker")) continue;  // owners write no stacks
    shared_stack one = stack_of(d, which);
    auto same = std::ranges::find_if(all, [&](const shared_stack& known) { return known.is_same(one); });
    if (same == all.end()) same = all.insert(all.end(), std::move(one));
    same->workers.push_back(fmt::format("{} incarnation {}", worker_name(d), d.at("incarnation").dump()));
    same->attempts.push_back(text_of(d.at("attempt")));
  }
  return all;
}

/// Which frames are shown: the newest one and, of the others, all or only those for which `below` is false.
std::vector<bool> shown_of(const std::vector<std::string>& frames, frames_shown which, const std::function<bool(const std::string&)>& below) {
  std::vector<bool> shown;
  for (const std::string& frame : frames) shown.push_back(shown.empty() || which == frames_shown::all || !below(frame));
  return shown;
}

/// The lines of the frames that are shown, with a count of the frames left out
/// between them. `whose`: where those frames belong, for the text.
std::vector<std::string> folded(const std::vector<std::string>& lines, const std::vector<bool>& shown, std::string_view whose) {
  std::vector<std::string> out;
  std::uint64_t left_out = 0;
  const auto tell_left_out = [&] {
    if (left_out > 0) out.push_back(fmt::format("({} of {})", counted(std::exchange(left_out, 0), "frame"), whose));
  };
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (!shown[i]) {
      ++left_out;
      continue;
    }
    tell_left_out();
    out.push_back(lines[i]);
  }
  tell_left_out();
  return out;
}

/// The names of the frames that are shown.
std::map<std::string, std::string> names_in(const std::vector<shared_stack>& stacks, const frame_namer& name, frames_shown which) {
  std::set<std::string> distinct;
  for (const shared_stack& s : stacks) {
    const std::vector<bool> shown = shown_of(s.native, which, is_frame_below_user);
    for (std::size_t i = 0; i < shown.size(); ++i) {
      if (shown[i]) distinct.insert(s.native[i]);
    }
  }
  std::map<std::string, std::string> names;
  if (distinct.empty()) return names;
  const std::vector<std::string> frames(distinct.begin(), distinct.end());
  const std::vector<std::string> named = name(frames);
  for (std::size_t i = 0; i < frames.size(); ++i) names[frames[i]] = named[i];
  return names;
}

/// The file of "read at /home/me/data.py:12".
std::string_view file_of(std::string_view frame) {
  constexpr std::string_view at = " at ";
  const std::size_t begin = frame.find(at);
  const std::size_t end = frame.rfind(':');
  return begin == std::string_view::npos || end < begin + at.size() ? std::string_view() : frame.substr(begin + at.size(), end - begin - at.size());
}

/// Where penstock's Python package is: a worker's stack begins in one of these files. Empty if the stack was cut off before them.
std::string package_in(const std::vector<std::string>& of_python) {
  for (const std::string& frame : of_python | std::views::reverse) {
    for (const std::string_view begins : {"/penstock/worker.py", "/penstock/_loading.py"}) {
      if (const std::string_view file = file_of(frame); file.ends_with(begins)) return std::string(file.substr(0, file.rfind('/') + 1));
    }
  }
  return "";
}

/// Whether a frame belongs to penstock, or to the parts of Python that start programs and import modules.
bool is_python_below_user(std::string_view frame, std::string_view package) {
  const std::string_view file = file_of(frame);
  if (!package.empty() && file.starts_with(package)) return true;
  return file.starts_with("<frozen ") || file.ends_with("/runpy.py") || file.find("/importlib/") != std::string_view::npos;
}

std::vector<std::string> lines_of(const shared_stack& s, const std::map<std::string, std::string>& names, frames_shown which) {
  const std::string package = package_in(s.of_python);
  const auto below = [&package](const std::string& frame) { return is_python_below_user(frame, package); };
  std::vector<std::string> lines = folded(s.of_python, shown_of(s.of_python, which, below), "penstock and Python");
  if (!s.of_python.empty() && !s.native.empty()) lines.emplace_back(which == frames_shown::all ? "in native code:" : "in native code (--all-frames also shows the interpreter's frames):");
  std::vector<std::string> native;
  for (const std::string& frame : s.native) native.push_back(names.contains(frame) ? names.at(frame) : frame);
  for (const std::string& line : folded(native, shown_of(s.native, which, is_frame_below_user), "penstock and system libraries"))
    lines.push_back((s.of_python.empty() ? "" : "  ") + line);
  return lines;
}

std::string heading_of(const shared_stack& s) {
  std::string who;
  for (const std::string& worker : s.workers) who += (who.empty() ? "" : ", ") + worker;
  return fmt::format("\n{}, {}{}:\n", who, s.workers.size() == 1 ? "" : "each ", s.ending);
}

}  // namespace

bool is_frame_below_user(const std::string& frame) {
  const std::size_t plus = std::min(frame.rfind("+0x"), frame.size());
  const std::string module = frame.substr(frame.rfind('/', plus) + 1, plus - frame.rfind('/', plus) - 1);
  const auto begins = [](std::string_view text, std::initializer_list<std::string_view> with) {
    return std::ranges::any_of(with, [text](std::string_view one) { return text.starts_with(one); });
  };
  if (begins(module, {"penstock-", "libpenstock", "libcaf_", "libc.so", "libc-", "libstdc++", "libgcc_s", "libpthread", "ld-linux", "[vdso]"})) return true;
  constexpr std::string_view in = " in ";
  const std::size_t function = frame.find(in, plus);
  if (function == std::string::npos) return false;
  // A name that was cut off could not be demangled.
  return begins(std::string_view(frame).substr(function + in.size()), {"penstock::", "caf::", "std::", "_ZN8penstock", "_ZN3caf", "_ZSt", "_ZNSt"});
}

std::vector<std::string> stack_lines(const json& death, const frame_namer& name, frames_shown which) {
  const shared_stack s = stack_of(death, which);
  return lines_of(s, names_in({s}, name, which), which);
}

json stacks_by_attempt(const json& deaths, const frame_namer& name, frames_shown which) {
  const std::vector<shared_stack> stacks = stacks_of(deaths, which);
  const std::map<std::string, std::string> names = names_in(stacks, name, which);
  json all = json::array();
  for (const shared_stack& s : stacks) {
    if (json lines = lines_of(s, names, which); !lines.empty()) all.push_back({{"attempts", s.attempts}, {"lines", std::move(lines)}});
  }
  return all;
}

std::string stacks_for_people(const json& deaths, const frame_namer& name, frames_shown which) {
  const std::vector<shared_stack> stacks = stacks_of(deaths, which);
  const std::map<std::string, std::string> names = names_in(stacks, name, which);
  std::string out;
  for (const shared_stack& s : stacks) {
    out += heading_of(s);
    if (!s.wait_channel.empty()) out += "  it was " + (s.wait_channel == suspended_channel ? "suspended" : s.wait_channel) + "\n";
    for (const std::string& line : lines_of(s, names, which)) out += "  " + line + "\n";
    if (s.native.empty() && s.of_python.empty()) out += "  (no stack was written)\n";
  }
  return out;
}

}  // namespace penstock::cli
