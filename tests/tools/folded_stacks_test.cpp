// Stacks of dying workers in the output that `penstock logs` shows.
#include "tools/penstock/watch/folded_stacks.hpp"

#include <catch2/catch_test_macros.hpp>

#include <string>
#include <vector>

using namespace penstock;
using strings = std::vector<std::string>;

namespace {

const strings python{std::string(process::python_stack_begin), "  File \"data.py\", line 7 in __getitem__"};
const strings native{"penstock-stack: signal 11, thread 5", "penstock-stack: #0 /lib/libc.so.6+0x167ad8", "penstock-stack: #1 main"};

strings operator+(strings a, const strings& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

strings shown(const strings& output) {
  cli::folded_stacks folds("(its stack is elsewhere)");
  strings all;
  for (const std::string& line : output) all = all + folds.pass(line);
  return all + folds.rest();
}

}  // namespace

TEST_CASE("logs replace each stack of a dying worker by one line, and show all else that it wrote") {
  CHECK(shown(strings{"loading"} + python + native) == strings{"loading", "(its stack is elsewhere)"});
  CHECK(shown(native + strings{"Aborted"} + native) == strings{"(its stack is elsewhere)", "Aborted", "(its stack is elsewhere)"});
  CHECK(shown({native.back()}) == strings{"(its stack is elsewhere)"});  // --tail has left out its beginning
}

TEST_CASE("logs show a stack that a living program wrote") {
  CHECK(shown(python + strings{"next"}) == python + strings{"next"});
  CHECK(shown(python) == python);
}
