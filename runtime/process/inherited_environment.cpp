#include "runtime/process/inherited_environment.hpp"

#include <unistd.h>

extern char** environ;  // NOLINT: POSIX declares it nowhere

namespace penstock::process {

bool is_secret(std::string_view variable) {
  return variable.starts_with("PENSTOCK_GROUP_SECRET=");
}

std::vector<std::string> inherited_environment() {
  std::vector<std::string> list;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (!is_secret(*entry)) list.emplace_back(*entry);
  }
  return list;
}

}  // namespace penstock::process
