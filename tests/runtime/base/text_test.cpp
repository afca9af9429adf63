#include "runtime/base/one_line.hpp"
#include "runtime/base/text.hpp"

#include <catch2/catch_test_macros.hpp>

#include <array>

using namespace penstock;

TEST_CASE("bytes that are not UTF-8 or move the cursor are shown in hexadecimal") {
  CHECK(printable("plain é 漢 🐟.jpg") == "plain é 漢 🐟.jpg");
  CHECK(printable("a\nb\x1b[31m") == "a\\x0ab\\x1b[31m");
  CHECK(printable("caf\xe9.jpg") == "caf\\xe9.jpg");
  CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");  // a surrogate
  CHECK(printable("\xc0\xaf") == "\\xc0\\xaf");           // overlong
  CHECK(printable("cut \xe2\x82") == "cut \\xe2\\x82");
  CHECK(printable("\xc2\x9b") == "\\xc2\\x9b");  // a C1 control
}

TEST_CASE("long text is cut between characters") {
  CHECK(shortened("short", 10) == "short");
  CHECK(shortened("0123456789", 8) == "01234...");
  CHECK(shortened("ééééé", 8) == "éé...");
}

TEST_CASE("the nearest name is suggested only when it is close") {
  constexpr std::array<std::string_view, 3> names{"workers", "slots_per_worker", "start"};
  CHECK(nearest_name("worker", names) == "workers");
  CHECK(nearest_name("wokrers", names) == "workers");
  CHECK(nearest_name("strat", names) == "start");
  CHECK(nearest_name("colour", names).empty());
}

TEST_CASE("a text of several lines becomes one line in a table") {
  CHECK(one_line("") == "");
  CHECK(one_line("out of memory") == "out of memory");
  CHECK(one_line("ValueError: no file\n  in photos/17.jpg\r\n\n") == "ValueError: no file; in photos/17.jpg");
  CHECK(one_line("Traceback (most recent call last):\n  File \"a.py\"\n    open(path)\nValueError: no file") ==
        "Traceback (most recent call last): ... ValueError: no file");
  CHECK(one_line("a\x1b[31m\n\t\n") == "a\\x1b[31m");
}
