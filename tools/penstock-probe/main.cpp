// penstock-probe: queries the GPU's driver in a throwaway process. Started by `penstock doctor`.
#include "runtime/process/spawn.hpp"
#include "tools/penstock-probe/probes.hpp"

#include <nlohmann/json.hpp>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace penstock::probe {

void tell(const nlohmann::json& facts) {
  const std::string line = facts.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

void begin_step(const char* name) {
  tell({{"step", name}});
}

device::driver_library open_library(const std::string& name, const std::string& root) {
  begin_step(("loading " + name).c_str());
  device::driver_library library(name, root);
  if (library) {
    tell({{"path", library.path()}});
  } else {
    tell({{"load_error", library.trouble()}});
  }
  return library;
}

namespace {

constexpr int exit_usage = 2;
constexpr int witness_fd = 3;  // one end of a pipe: the reader notices when the last holder is gone

/// Starts a child as a session starts a worker, and dies: the child must die too.
int leave_child() {
  const auto child = process::spawn({"/proc/self/exe", {"wait"}, {}, {{witness_fd, witness_fd}}});
  if (!child) {
    tell({{"error", child.error().message}});
    return 1;
  }
  tell({{"child", child->pid}});
  return 0;
}

int main_of(const std::vector<std::string>& words) {
  const auto number = [&](std::size_t i) { return std::strtoull(words[i].c_str(), nullptr, 10); };
  const std::string_view mode = words.empty() ? "" : words[0];
  if (mode == "cuda" && words.size() == 2) return ask_cuda(words[1]);
  if (mode == "nvml" && words.size() == 2) return ask_nvml(words[1]);
  if (mode == "copy" && words.size() == 2) return copy_with_cuda(static_cast<int>(number(1)));
  if (mode == "deep" && words.size() == 5) {
    return go_deep(
        {words[1], static_cast<std::uint32_t>(number(2)), static_cast<std::uint32_t>(number(3)), number(4)});
  }
  if (mode == "leave-child" && words.size() == 1) return leave_child();
  if (mode == "wait" && words.size() == 1) {  // the child that tests the parent death signal
    ::pause();
    return 1;
  }
  std::fputs("This program is started by `penstock doctor`.\n", stderr);
  return exit_usage;
}

}  // namespace
}  // namespace penstock::probe

int main(int argc, char** argv) {
  const int code = penstock::probe::main_of({argv + 1, argv + argc});
  std::fflush(nullptr);
  // A driver's exit handlers may hang; nothing here needs them.
  ::_exit(code);
}
