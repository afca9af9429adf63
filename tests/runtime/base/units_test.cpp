#include "runtime/base/units.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace std::chrono_literals;

TEST_CASE("sizes are read with their unit") {
  CHECK(parse_bytes("64MiB") == 64 * MiB);
  CHECK(parse_bytes("1.5GiB") == 3 * GiB / 2);
  CHECK(parse_bytes("10 MB") == 10'000'000U);
  CHECK(parse_bytes("0B") == 0U);
  CHECK(parse_bytes("9007199254740993B") == 9007199254740993U);  // not a double
}

TEST_CASE("durations are read with their unit") {
  CHECK(parse_duration("250ms") == 250ms);
  CHECK(parse_duration("1.5s") == 1500ms);
  CHECK(parse_duration("10m") == 10min);
  CHECK(parse_duration("0us") == 0ns);
  CHECK(parse_duration("1d") == 24h);
}

TEST_CASE("a size without number or unit, or one that is too large, is refused, and the error says what to write instead") {
  for (const char* text :
       {"", "64", "MiB", "-1MiB", "64mb", "1e400B", "nanB", "9223372036854775808B", "9000000TiB"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_bytes(text));
  }
  CHECK(parse_bytes("64").error().message ==
        "'64' has no unit: add one of TiB, TB, GiB, GB, MiB, MB, KiB, KB, B, as in \"64MiB\"");
  CHECK(parse_duration("10x").error().message ==
        "'x' is not a unit of a duration: write one of d, h, m, s, ms, us, ns");
}

TEST_CASE("a value printed for a config file reads back unchanged") {
  for (const std::uint64_t bytes :
       {0ULL, 1ULL, 1023ULL, 1024ULL, 64ULL << 20U, 3ULL << 29U, 12345678901ULL}) {
    CHECK(parse_bytes(bytes_as_config(bytes)) == bytes);
  }
  for (const nanoseconds time :
       {0ns, 1ns, nanoseconds(1500us), nanoseconds(200ms), nanoseconds(90s), nanoseconds(2h)}) {
    CHECK(parse_duration(duration_as_config(time)) == time);
  }
}

TEST_CASE("sizes and times are printed for people in a suitable unit") {
  CHECK(bytes_for_people(812) == "812 B");
  CHECK(bytes_for_people(1536) == "1.50 KiB");
  CHECK(bytes_for_people(64 * MiB) == "64.0 MiB");
  CHECK(duration_for_people(250ms) == "250 ms");
  CHECK(duration_for_people(125s) == "2 m 5 s");
}

TEST_CASE("a value that rounds up to the next unit is printed in that unit") {
  CHECK(bytes_for_people(1023) == "1023 B");
  CHECK(bytes_for_people(1024) == "1.00 KiB");
  CHECK(bytes_for_people(MiB - 1) == "1.00 MiB");
  CHECK(bytes_for_people(1023 * KiB) == "1023 KiB");
  CHECK(bytes_for_people(GiB - 1) == "1.00 GiB");
  CHECK(bytes_for_people(10 * KiB - 1) == "10.0 KiB");
  CHECK(bytes_for_people(100 * KiB - 1) == "100 KiB");
  CHECK(bytes_for_people(4096 * 1024 * GiB) == "4096 TiB");
  CHECK(duration_for_people(999'900ns) == "1 ms");
  CHECK(duration_for_people(999'900us) == "1 s");
  CHECK(duration_for_people(59'990ms) == "1 m 0 s");
  CHECK(duration_for_people(59'900ms) == "59.9 s");
}
