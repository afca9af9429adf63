#include "actors/child/arguments.hpp"

#include <fstream>

namespace penstock::child {

std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> all;
  for (std::string one; std::getline(file, one, '\0');) all.push_back(one);
  return all;
}

result<std::string> argument_list::value() {
  const std::string option = name();
  const std::string& text = all_[at_++];
  if (option.size() < text.size()) return text.substr(option.size() + 1);
  if (done()) return refuse(errc::usage, "{} needs a value", option);
  return all_[at_++];
}

}  // namespace penstock::child
