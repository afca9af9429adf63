// How users' exceptions are described.
#include "runtime/base/thrown.hpp"

#include <penstock/error.hpp>

#include <catch2/catch_test_macros.hpp>

#include <new>
#include <stdexcept>

using namespace penstock;

namespace {

struct torn_page : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class Throw>
std::string text_of_what(Throw act) {
  try {
    act();
  } catch (...) {
    return thrown_text();
  }
  return "";
}

}  // namespace

TEST_CASE("an exception is described with its type, unless its text was written for people") {
  CHECK(text_of_what([] { throw std::out_of_range("map::at"); }) == "std::out_of_range: map::at");
  CHECK(text_of_what([] { throw torn_page("page 7"); }).ends_with("torn_page: page 7"));
  CHECK(text_of_what([] { throw std::runtime_error("the line has 300 bytes"); }) == "the line has 300 bytes");
  CHECK(text_of_what([] { throw error({errc::dataset, "the index is empty", 0}); }) == "the index is empty");
  CHECK(text_of_what([] { throw std::bad_alloc(); }) == "std::bad_alloc");
  CHECK(text_of_what([] { throw std::logic_error(""); }) ==
        "std::logic_error: an exception without a message");
}

TEST_CASE("a thrown non-exception is described with its type, and with its text if it is a string") {
  CHECK(text_of_what([] { throw 7; }) == "int: an exception that is not a std::exception");
  CHECK(text_of_what([] { throw std::string("no such page"); }) == "no such page");
  CHECK(text_of_what([] { throw "no such book"; }) == "no such book");
}

TEST_CASE("nested exceptions are described from the outermost to the innermost") {
  const auto act = [] {
    try {
      throw std::runtime_error("no such file");
    } catch (...) {
      std::throw_with_nested(std::runtime_error("cannot open the index"));
    }
  };
  CHECK(text_of_what(act) == "cannot open the index: no such file");
}

TEST_CASE("an exception whose text contains that of its nested cause is described once") {
  const auto nested = [](const std::string& inner, const std::string& outer) {
    return text_of_what([&] {
      try {
        throw std::runtime_error(inner);
      } catch (...) {
        std::throw_with_nested(std::runtime_error(outer));
      }
    });
  };
  CHECK(nested("no such file", "loading a.jpg: no such file") == "loading a.jpg: no such file");
  CHECK(nested("no such file", "a.jpg cannot be read (no such file)") == "a.jpg cannot be read (no such file)");
  CHECK(nested("loading a.jpg: no such file", "loading a.jpg") == "loading a.jpg: no such file");
  CHECK(nested("page 1", "book of page 17") == "book of page 17: page 1");  // page 17 is another page
  CHECK(nested("loading a.jpg2: no such file", "loading a.jpg") == "loading a.jpg: loading a.jpg2: no such file");
}
