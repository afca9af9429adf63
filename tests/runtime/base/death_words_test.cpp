// What a report names as the cause of a death: the work in hand, or the sender of a signal.
#include "runtime/base/death_words.hpp"
#include "runtime/base/last_death.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;

TEST_CASE("the sender of a signal is named without the details of the reason") {
  CHECK(sender_in(true, reason_of_sent_signal("no OOM kill was counted")) == "sent by another process or by its own code");
  CHECK(sender_in(true, "sent by process 4711") == "sent by process 4711");
  CHECK(sender_in(true, "").empty());
  CHECK(sender_in(false, "no heartbeat for 10 s").empty());
}

TEST_CASE("the last death is the last end that was not asked for, and was not the loss of a host") {
  const auto last = [](std::vector<std::string_view> causes) {
    const std::string_view* const found = last_death(causes, [](std::string_view cause) { return cause; });
    return std::string(found == nullptr ? "none" : *found);
  };
  CHECK(last({}) == "none");
  CHECK(last({"stopped", "cancelled", "host"}) == "none");
  CHECK(last({"oom", "signal", "host", "stopped", "cancelled"}) == "signal");
  for (const death_cause dies : {death_cause::signal, death_cause::exit, death_cause::hang, death_cause::heartbeat, death_cause::memory, death_cause::oom,
                                 death_cause::protocol, death_cause::unknown})
    CHECK(counts_as_death(name_of(dies)));
  CHECK(last({"exit", "of a newer version"}) == "of a newer version");
}

TEST_CASE("equal causes of death in a row are written once, with their number") {
  CHECK(causes_in_words({}).empty());
  CHECK(causes_in_words({"SIGSEGV"}) == "SIGSEGV");
  CHECK(causes_in_words({"exit 3", "exit 3", "exit 3"}) == "3 x exit 3");
  CHECK(causes_in_words({"SIGSEGV", "SIGABRT", "SIGABRT", "SIGSEGV"}) == "SIGSEGV, 2 x SIGABRT, SIGSEGV");
}

TEST_CASE("a sample is reported as the killer of its workers only if no signal was sent to them") {
  const std::string sent = cause_with_sender("SIGKILL", unknown_sender);
  CHECK(sent == "SIGKILL (sent by another process or by its own code)");
  CHECK(cause_with_sender("SIGSEGV", "") == "SIGSEGV");
  CHECK(deaths_over_work("it", {"SIGSEGV", "exit 3"}, 2) == "it killed 2 workers");
  CHECK(deaths_over_work("it", {"SIGSEGV", sent}, 2) == "it was in progress when 2 workers died");
  CHECK(deaths_over_work("thumbnail", {sent}, 1) == "thumbnail was in progress when 1 worker died");
}
