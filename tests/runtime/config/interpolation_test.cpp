#include "runtime/config/interpolation.hpp"

#include "support.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock::config_file;
using namespace penstock::config_file::testing;

namespace {

reference_values values() {
  reference_values made;
  made.environment = {{"HOME", "/home/a"}, {"EMPTY", ""}, {"TRICKY", "${env:HOME}$"}};
  made.variables = {{"root", "/data"}, {"with space", "x"}};
  made.broken_variables = {"broken"};
  return made;
}

expansion expanded(std::string_view text, reference_scope scope = reference_scope::everything) {
  return expand(text, values(), "/etc/penstock", scope);
}

}  // namespace

TEST_CASE("references are replaced and other text is unchanged") {
  CHECK(expanded("").text.empty());
  CHECK(expanded("plain } { text").text == "plain } { text");
  CHECK(expanded("${env:HOME}/x").text == "/home/a/x");
  CHECK(expanded("${cfg:dir}/${var:root}").text == "/etc/penstock//data");
  CHECK(expanded("${var:with space}").text == "x");
  CHECK(expanded("a$$b$$$$").text == "a$b$$");
  CHECK(expanded("$${env:HOME}").text == "${env:HOME}");
  CHECK(expanded("$$${env:HOME}").text == "$/home/a");
}

TEST_CASE("a default replaces a variable that is unset or empty") {
  CHECK(expanded("${env:UNSET:-d}").text == "d");
  CHECK(expanded("${env:EMPTY:-d}").text == "d");
  CHECK(expanded("${env:EMPTY}x").text == "x");
  CHECK(expanded("${env:HOME:-d}").text == "/home/a");
  CHECK(expanded("${env:UNSET:-}").text.empty());
  CHECK(expanded("${env:UNSET:-a:-b}").text == "a:-b");
}

TEST_CASE("values from the environment are not expanded again") {
  CHECK(expanded("${env:TRICKY}").text == "${env:HOME}$");
}

TEST_CASE("each error points to the bytes of its reference") {
  const expansion made = expanded("ab${env:UNSET}cd${what}$");
  CHECK_FALSE(made.sound);
  REQUIRE(made.errors.size() == 3);
  CHECK(made.errors[0].begin == 2);
  CHECK(made.errors[0].end == 14);
  CHECK(made.errors[0].unset);
  CHECK(made.errors[1].begin == 16);
  CHECK(made.errors[1].end == 23);
  CHECK(made.errors[2].begin == 23);
  CHECK(made.errors[2].end == 24);
}

TEST_CASE("malformed references are refused") {
  for (const char* const text : {"$", "${", "${}", "${env}", "${env:}", "${env:A B}", "${var:none}",
                                 "${cfg:x}", "$HOME", "${:}", "a${env:HOME"}) {
    INFO(text);
    CHECK_FALSE(expanded(text).sound);
    CHECK(expanded(text).errors.size() == 1);
  }
}

TEST_CASE("a reference to a variable with an error fails without a second diagnostic") {
  const expansion made = expanded("${var:broken}");
  CHECK_FALSE(made.sound);
  CHECK(made.errors.empty());
}

TEST_CASE("variables are refused where their values are not known yet") {
  CHECK_FALSE(expanded("${var:root}", reference_scope::no_variables).sound);
  CHECK(expanded("${env:HOME}${cfg:dir}", reference_scope::no_variables).sound);
}

TEST_CASE("an escaped text expands to itself") {
  for (const char* const text : {"", "$", "$$", "${env:HOME}", "a$b", "plain"}) {
    CHECK(expanded(escaped_references(text)).text == text);
  }
}

TEST_CASE(
    "variables may use the environment and the folder of their file, and are merged before they are used") {
  const temporary_folder folder;
  folder.write("base/base.toml",
               "[vars]\nroot = \"${cfg:dir}/r\"\nwho = \"${env:USER:-nobody}\"\n[dataset]\npath = "
               "\"${var:root}/${var:who}\"\n");
  const loading result = load_text(folder, "include = [\"base/base.toml\"]\n[vars]\nwho = \"$$me\"\n");
  INFO(complaints_of(result));
  REQUIRE(result);
  CHECK(result->values.dataset.path == (folder.path() / "base/r/$me").string());
  CHECK(result->values.vars.at("root") == (folder.path() / "base/r").string());
}

TEST_CASE("a string with the character U+0000 is refused") {
  const loading result = load_text("[dataset]\npath = \"a\\u0000b\"\n");
  REQUIRE_FALSE(result);
  CHECK(result.error().diagnostics[0].message == "'path' in [dataset] must not contain the character U+0000");
}
