#include "actors/host/process_logs.hpp"
#include "runtime/base/log.hpp"
#include "runtime/process/crash_notes.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

using namespace penstock;

namespace {

/// What the session's own log receives while this lives.
struct own_log {
  own_log() {
    log::set_sink([this](log::level, std::string_view, std::string_view line) { lines.emplace_back(line); });
  }
  ~own_log() { log::set_sink({}); }
  own_log(const own_log&) = delete;
  own_log& operator=(const own_log&) = delete;

  [[nodiscard]] std::size_t with(std::string_view part) const {
    std::size_t count = 0;
    for (const std::string& line : lines) count += line.find(part) != std::string::npos ? 1 : 0;
    return count;
  }

  std::vector<std::string> lines;
};

}  // namespace

TEST_CASE("the stack of a dying process stays out of the session's log and of its limit, however much the process wrote before") {
  const own_log log;
  host::process_logs logs;
  logs.started("worker/0", 1);
  for (int i = 0; i < 600; ++i) logs.wrote("worker/0", 1, "a flood");
  const std::size_t before = log.with("a flood");
  CHECK(before < 600);
  logs.wrote("worker/0", 1, process::python_stack_begin);
  for (int i = 0; i < 20; ++i) logs.wrote("worker/0", 1, "  File \"train.py\", line 6 in f");
  for (int i = 0; i < 20; ++i) logs.wrote("worker/0", 1, "penstock-stack: #0 /lib/libc.so.6+0x167ad8");
  logs.ended("worker/0");
  CHECK(log.with("train.py") == 0);
  CHECK(log.with("penstock-stack") == 0);
  CHECK(log.with("dropped " + std::to_string(600 - before) + " lines") == 1);
}
