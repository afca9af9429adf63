#include "runtime/base/exit_report.hpp"

#include <fmt/core.h>

#include <cstring>

namespace penstock::process {

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

}  // namespace penstock::process
