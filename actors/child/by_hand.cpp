#include "actors/child/by_hand.hpp"

#include "runtime/base/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

namespace penstock::child {

result<bool> parse_by_hand(const std::vector<std::string>& arguments,
                           const std::vector<by_hand_option>& options) {
  bool asked = false;
  for (std::size_t at = 0; at < arguments.size();) {
    const std::string& whole = arguments[at++];
    const std::string name = whole.substr(0, whole.find('='));
    const bool has_value = name.size() < whole.size();
    const auto option = std::ranges::find(options, name, &by_hand_option::name);
    if (option == options.end()) {
      if (!asked) continue;
      return refuse(errc::usage, "unknown option '{}'; --help lists the options", printable(whole));
    }
    asked = true;
    if (bool* const* const flag = std::get_if<bool*>(&option->what)) {
      if (has_value) return refuse(errc::usage, "{} takes no value", name);
      **flag = true;
      continue;
    }
    if (!has_value && at == arguments.size()) return refuse(errc::usage, "{} needs a value", name);
    const std::string value = has_value ? whole.substr(name.size() + 1) : arguments[at++];
    if (auto taken = std::get<1>(option->what)(value); !taken)
      return tl::unexpected(std::move(taken.error()));
  }
  return asked;
}

std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> all;
  for (std::string one; std::getline(file, one, '\0');) all.push_back(one);
  return all;
}

void complain(std::string_view program, const std::string& what) {
  std::fflush(stdout);
  fmt::print(stderr, "{}: {}\n", printable(program), printable(what));
}

void print_help(const std::string& text) {
  fmt::print("{}", text);
}

void print_not_asked(std::string_view program, std::string_view what_to_do) {
  fmt::print(stderr, fmt::runtime(what_to_do), printable(program));
}

}  // namespace penstock::child
