#include "tools/penstock/jobs/command_template.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock::cli;

namespace {

using words = std::vector<std::string>;

words split(const std::string& text, const std::string& item) {
  const auto parsed = command_template::parse(text);
  REQUIRE(parsed);
  return parsed->words_for(item);
}

std::string refusal(const std::string& text) {
  const auto parsed = command_template::parse(text);
  REQUIRE_FALSE(parsed);
  CHECK(parsed.error().code == penstock::errc::usage);
  return parsed.error().message;
}

}  // namespace

TEST_CASE("the item is one argument, whatever it contains") {
  for (const std::string item : {"a", "", "two words", "$(rm -rf /)", "'\"\\", "{}", "*", "-x", "\xff\xfe"})
    CHECK(split("convert {} out", item) == words{"convert", item, "out"});
}

TEST_CASE("the item can be part of a word, occur more than once, and be the program") {
  CHECK(split("cp {} out/{}.{}", "a b") == words{"cp", "a b", "out/a b.a b"});
  CHECK(split("{} --version", "gcc") == words{"gcc", "--version"});
  CHECK(split("--in={}{}", "x") == words{"--in=xx"});
}

TEST_CASE("without a placeholder the item becomes the last argument") {
  CHECK(split("gzip -9", "my file") == words{"gzip", "-9", "my file"});
  CHECK(split("true", "") == words{"true", ""});
}

TEST_CASE("quotes group words and are removed") {
  CHECK(split("a 'b c' \"d e\" f' 'g '' {}", "i") == words{"a", "b c", "d e", "f g", "", "i"});
  CHECK(split("  a \t b\n", "i") == words{"a", "b", "i"});
}

TEST_CASE("single quotes are literal, and in double quotes a backslash escapes four characters") {
  CHECK(split(R"(sh -c 'echo "$1" \n | wc > x' sh {})", "i") ==
        words{"sh", "-c", R"(echo "$1" \n | wc > x)", "sh", "i"});
  CHECK(split(R"(e "\"\\\$\`\n$1" {})", "i") == words{"e", R"("\$`\n$1)", "i"});
}

TEST_CASE("a backslash escapes the next character") {
  CHECK(split(R"(a\ b \' \| \\ {})", "i") == words{"a b", "'", "|", "\\", "i"});
}

TEST_CASE("the item is replaced in quotes too, and literal braces are escaped") {
  CHECK(split(R"(a '{}' "{}" '-{}-')", "i") == words{"a", "i", "i", "-i-"});
  CHECK(split(R"(awk \{} {''} '{'} {})", "i") == words{"awk", "{}", "{}", "{}", "i"});
  CHECK(split("a { } {x} {}", "i") == words{"a", "{", "}", "{x}", "i"});
}

TEST_CASE("shell syntax is refused, and the error says how to use a shell") {
  for (const std::string text : {"a {} > b", "a | b", "a; b", "a && b", "a $HOME", "a `b`", "a (b)",
                                 "ls *.png", "a ~/b", "a #b", "a b?", "a [b"}) {
    const std::string said = refusal(text);
    CHECK(said.find("runs without a shell") != std::string::npos);
    CHECK(said.find("sh -c") != std::string::npos);
  }
  CHECK(split("a b~ b#c", "i") == words{"a", "b~", "b#c", "i"});
}

TEST_CASE("a command without a program is refused, and so is an unterminated one") {
  CHECK(refusal("").find("names no program") != std::string::npos);
  CHECK(refusal("  \t ").find("names no program") != std::string::npos);
  CHECK(refusal("'' {}").find("names no program") != std::string::npos);
  CHECK(refusal("a 'b").find("not closed") != std::string::npos);
  CHECK(refusal("a \"b\\\"").find("not closed") != std::string::npos);
  CHECK(refusal("a \\").find("backslash") != std::string::npos);
}

TEST_CASE("the program is known unless the item is part of its name") {
  CHECK(command_template::parse("gcc -c {}")->program() == "gcc");
  CHECK(command_template::parse("'my program' {}")->program() == "my program");
  CHECK(command_template::parse("./{}.sh")->program().empty());
}
