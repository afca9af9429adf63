#include "runtime/process/stack_filter.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock::process;

namespace {

using strings = std::vector<std::string>;

/// What the filter passes on while it gets these lines, followed by its rest.
strings passed(const strings& lines) {
  stack_filter filter;
  strings all;
  for (const std::string& line : lines) {
    for (std::string& one : filter.pass(line)) all.push_back(std::move(one));
  }
  for (std::string& one : filter.rest()) all.push_back(std::move(one));
  return all;
}

const strings python{std::string(python_stack_begin), "  File \"train.py\", line 6 in __getitem__", "  File \"train.py\", line 9 in <module>"};
const strings native{"penstock-stack: signal 11, thread 7", "penstock-stack: #0 /lib/libc.so.6+0x167ad8"};

strings operator+(strings a, const strings& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace

TEST_CASE("of a process that writes its stack and dies, the log has only what the program wrote") {
  CHECK(passed(strings{"loading"} + python + native) == strings{"loading"});
  CHECK(passed(strings{"terminate called"} + native + strings{"Aborted"}) == strings{"terminate called", "Aborted"});
}

TEST_CASE("a stack that a living Python program writes passes, before the line that follows or at the process's end") {
  CHECK(passed(python + strings{"next"}) == python + strings{"next"});
  CHECK(passed(python) == python);
  CHECK(passed(python + python + native) == python);
}

TEST_CASE("lines that only look like frames pass at once, and a flood of them is not held") {
  stack_filter filter;
  CHECK(filter.pass("  File \"train.py\", line 6 in f") == strings{"  File \"train.py\", line 6 in f"});
  strings lines{std::string(python_stack_begin)};
  for (int i = 0; i < 1000; ++i) lines.push_back("  " + std::to_string(i));
  std::size_t count = 0;
  for (const std::string& line : lines) count += filter.pass(line).size();
  CHECK(count > 800);
  CHECK(count + filter.rest().size() == lines.size());
}
