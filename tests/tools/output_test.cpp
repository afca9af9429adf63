#include "tools/penstock/output.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock::cli;

TEST_CASE("a suggested command is the one that was typed, but for another session and without --json") {
  note_typed({"describe", "worker/3", "--session", "photos", "--json"});
  CHECK(typed_again("--last --session photos") == "penstock describe worker/3 --last --session photos");
  note_typed({"events", "--socket=/run/a.sock", "--since", "10 m", "--group", "x", "--last", "-f"});
  CHECK(typed_again("--session b") == "penstock events --since '10 m' -f --session b");
  CHECK(typed_again("--last") == "penstock events --since '10 m' --last");         // without --follow, because a record does not grow
  CHECK(typed_again("--session b@7-1") == "penstock events --since '10 m' --session b@7-1");
  note_typed({"logs", "it's", ""});
  CHECK(typed_again("--last") == "penstock logs 'it'\\''s' '' --last");
}
