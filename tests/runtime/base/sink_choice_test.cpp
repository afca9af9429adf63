// What --sink names.
#include "runtime/base/sink_choice.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;

TEST_CASE("a choice of --sink is its kind and its path, and anything else is unknown") {
  CHECK(sink_choice_in("null").kind == sink_kind::null);
  CHECK(sink_choice_in("npy").kind == sink_kind::npy);
  CHECK(sink_choice_in("journal:a:b").kind == sink_kind::journal);
  CHECK(sink_choice_in("journal:a:b").path == "a:b");
  CHECK(sink_choice_in("plugin:/p.so").kind == sink_kind::plugin);
  CHECK(sink_choice_in("plugin:/p.so").path == "/p.so");
  CHECK(sink_choice_in("journal:").path.empty());
  for (const char* const other : {"", ":", "journal", "nul", "npy:x", "null:", "Plugin:x"}) CHECK(sink_choice_in(other).kind == sink_kind::unknown);
}
