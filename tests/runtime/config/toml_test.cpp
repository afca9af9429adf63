// Places: of keys and values in a text, of bytes in a string literal, of duplicate keys.
#include "runtime/config/document.hpp"
#include "runtime/config/toml_scan.hpp"
#include "support.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>

using namespace penstock::config_file;

namespace {

std::string joined(const std::vector<std::string>& path) {
  std::string text;
  for (const std::string& part : path) text.append(text.empty() ? "" : ".").append(part);
  std::replace(text.begin(), text.end(), element_mark, '#');
  return text;
}

std::vector<std::string> key_paths(std::string_view text) {
  std::vector<std::string> paths;
  for (const key_place& key : scan_keys(text).keys) paths.push_back(joined(key.path));
  return paths;
}

/// The names of the duplicate keys, each with the key that it clashes with.
std::vector<std::string> clashing(std::string_view text) {
  std::vector<std::string> names;
  for (const clash& one : clashes_of(scan_keys(text))) {
    names.push_back(joined(one.again.path) + " after " + joined(one.first.path));
  }
  return names;
}

const node& value_at(const node& root, std::string_view name) {
  return root.find(name)->value;
}

}  // namespace

TEST_CASE("every key of a text is found with its path") {
  using paths = std::vector<std::string>;
  CHECK(key_paths("").empty());
  CHECK(key_paths("a = 1\n[b]\nc.d = \"x\" # e = 2\n[b . \"f.g\"]\n'h' = 3") ==
        paths{"a", "b", "b.c.d", "b.f.g", "b.f.g.h"});
  CHECK(key_paths("a = { b = 1, c = { d = [1, { e = 2 }] } }") ==
        paths{"a", "a.b", "a.c", "a.c.d", "a.c.d#1.e"});
  CHECK(key_paths("[[a]]\nb = 1\n[[a]]\nb = 2\n[a.c]\nd = 3") ==
        paths{"a", "a#0.b", "a", "a#1.b", "a#1.c", "a#1.c.d"});
  CHECK(key_paths("a = \"\"\"\nb = 1\n\"\"\"\nc = '''\nd = 2''''\ne = [ # f = 1\n 1,\n]\ng = 1979-05-27 "
                  "07:32:00 # h\n") == paths{"a", "c", "e", "g"});
}

TEST_CASE("a text is scanned up to the point where it is no longer TOML") {
  const toml_keys found = scan_keys("a = 1\nb c\nd = 2\n");
  CHECK_FALSE(found.complete);
  CHECK(found.keys.size() == 1);
  for (const char* const text :
       {"[", "[[a]", "=", "a", "a =", "a = [", "a = {", "a = { b", "\"", "a = \"x\" y", "a.", ".a = 1"}) {
    INFO(text);
    CHECK_FALSE(scan_keys(text).complete);
  }
}

TEST_CASE("duplicate keys are found, wherever they are") {
  using names = std::vector<std::string>;
  CHECK(clashing("a = 1\nb = 2\n[c]\na = 1\n[d]\na = 1\n").empty());
  CHECK(clashing("a = 1\n\"a\" = 2\n") == names{"a after a"});
  CHECK(clashing("[t]\na = 1\n[t.u]\na = 1\n[t]\na = 3\n") == names{"t after t"});
  CHECK(clashing("a = { b = 1, b = 2 }") == names{"a.b after a.b"});
  CHECK(clashing("a = { b = 1 }\na = { b = 2 }") == names{"a after a"});
  CHECK(clashing("[[a]]\nb = 1\n[[a]]\nb = 1\n").empty());
  CHECK(clashing("[[a]]\nb = 1\nb = 2\n") == names{"a#0.b after a#0.b"});
  CHECK(clashing("a = [{ b = 1 }, { b = 2 }]").empty());
  CHECK(clashing("[[a]]\nb = 1\n[\"a#0\"]\nb = 2\n").empty());
}

TEST_CASE("tables may be opened in any order, but not twice and not inside values") {
  using names = std::vector<std::string>;
  CHECK(clashing("[a.b]\n[a]\n[a.c]\n").empty());
  CHECK(clashing("a.b = 1\na.c = 2\n[d]\ne.f = 1\ne.g = 2\n").empty());
  CHECK(clashing("[a]\n[a]\n") == names{"a after a"});
  CHECK(clashing("[a.b]\n[a]\n[a]\n") == names{"a after a"});
  CHECK(clashing("a = 1\n[a]\n") == names{"a after a"});
  CHECK(clashing("a = 1\n[a.b]\n") == names{"a.b after a"});
  CHECK(clashing("a = {}\na.b = 1\n") == names{"a.b after a"});
  CHECK(clashing("[a]\nb.c = 1\n[a.b]\n") == names{"a.b after a.b.c"});
  CHECK(clashing("[a.b]\nx = 1\n[a]\nb.c = 1\n") == names{"a.b.c after a.b"});
  CHECK(clashing("[[a]]\n[a]\n") == names{"a after a"});
  CHECK(clashing("[a]\n[[a]]\n") == names{"a after a"});
  CHECK(clashing("a = []\n[[a]]\n") == names{"a after a"});
}

TEST_CASE("the clashes found are those that toml++ refuses, and a text without clashes parses") {
  // The scanner repeats toml++'s rules; this test keeps the two consistent.
  for (const char* const text :
       {"a = 1\na = 2\n", "[t]\na=1\n[t]\nb=2\n", "a = { b = 1, c = 2, b = 3 }\n", "a = 1\na.b = 2\n",
        "[a.b]\n[a]\nb.c = 1\n", "a.b = 1\n[a]\nc = 1\n", "[[a]]\nx = 1\n[a]\nx = 1\n",
        "[a]\nx = 1\n[[a]]\nx = 1\n", "a = [1]\n[[a]]\n", "a = {}\n[a.b]\nc = 1\n",
        "a = [ { b = 1, b = 2 }, { b = 3 } ]\n", "[a]\nb = { c = 1 }\nb.d = 2\n[e]\nb = 3\n# end"}) {
    INFO(text);
    const source from(source_kind::file, "x", text, "/", 0);
    complaints found;
    const document parsed = parse_document(from, found);
    CHECK(parsed.complete);
    CHECK(found.error_count() == 1);
    CHECK(found.sorted()[0].related.size() == 1);
  }
}

TEST_CASE("a dotted key is too long when it has more parts than the limit") {
  CHECK(find_overlong_key("a.b.c = 1", 3) == std::string::npos);
  CHECK(find_overlong_key("a.b.c.d = 1", 3) == 5);
  CHECK(find_overlong_key("a . \"b.c.d.e\" . 'f' = 1", 3) == std::string::npos);
  CHECK(find_overlong_key("a = [1.0, 2.0, 3.0, 4.0, 5.0]", 2) == std::string::npos);
  CHECK(find_overlong_key("a = \"b.c.d.e.f\" # g.h.i.j.k.l", 2) == std::string::npos);
  CHECK(find_overlong_key("x = { a.b.c.d = 1 }", 3) == 11);
}

TEST_CASE("each value knows its position") {
  const source text(
      source_kind::file, "x",
      "n = 12 # c\ns = \"gr\\u00f6\u00dfe\"\n[t]\na = [ 1,\n  true ]\ni = { x = 1.5 }\nd = 2024-01-01", "/",
      0);
  complaints found;
  const document parsed = parse_document(text, found);
  REQUIRE(parsed.trees.size() == 1);
  const node& root = parsed.trees[0];
  CHECK(value_at(root, "n").at.text() == "12");
  CHECK(value_at(root, "s").at.text() == "\"gr\\u00f6\u00dfe\"");
  CHECK(value_at(root, "s").text == "gr\u00f6\u00dfe");
  CHECK(root.find("t")->key.text() == "t");
  const node& table = value_at(root, "t");
  CHECK(table.at.text() == "t");
  CHECK(value_at(table, "a").at.text() == "[ 1,\n  true ]");
  CHECK(value_at(table, "a").elements[1].at.text() == "true");
  CHECK(value_at(table, "i").at.text() == "{ x = 1.5 }");
  CHECK(value_at(value_at(table, "i"), "x").at.text() == "1.5");
  CHECK(value_at(table, "d").at.text() == "2024-01-01");
  CHECK(value_at(table, "d").kind == node_kind::time);
  CHECK(text.position_of(value_at(table, "a").elements[1].at.begin).line == 5);
  CHECK(text.position_of(value_at(table, "a").elements[1].at.begin).column == 3);
}

TEST_CASE("a byte order mark and carriage returns do not shift positions") {
  const source text(source_kind::file, "x", "\xef\xbb\xbfname = 1\r\nb = \"x\"\r\n", "/", 0);
  complaints found;
  const document parsed = parse_document(text, found);
  const node& value = value_at(parsed.trees.at(0), "b");
  CHECK(value.at.text() == "\"x\"");
  CHECK(text.position_of(value.at.begin).line == 2);
  CHECK(text.position_of(value.at.begin).column == 5);
  CHECK(text.line_at(0) == "name = 1");
}

TEST_CASE("each byte of a string is located in its literal") {
  using offsets = std::vector<std::size_t>;
  CHECK(literal_offsets("") == offsets{0});
  CHECK(literal_offsets("ab") == offsets{0, 1, 2});
  CHECK(literal_offsets("\"ab\"") == offsets{1, 2, 3});
  CHECK(literal_offsets("'a\\'") == offsets{1, 2, 3});
  CHECK(literal_offsets("\"\\n\\\"x\"") == offsets{1, 3, 5, 6});
  CHECK(literal_offsets("\"\\u00f6x\"") == offsets{1, 1, 7, 8});
  CHECK(literal_offsets("\"\\U0001f41fx\"") == offsets{1, 1, 1, 1, 11, 12});
  CHECK(literal_offsets("\"\"\"\nab\"\"\"") == offsets{4, 5, 6});
  CHECK(literal_offsets("\"\"\"a\\\n   b\"\"\"") == offsets{3, 9, 10});
  CHECK(literal_offsets("'''\r\nx'''") == offsets{5, 6});
}

TEST_CASE("a single value is read as TOML or not at all") {
  const auto parsed = [](const char* value) {
    const source text(source_kind::override, "--set", std::string("key=") + value, "/", 0);
    return parse_value(text, 4);
  };
  CHECK(parsed("4")->integer == 4);
  CHECK(parsed(" \"x\" ")->text == "x");
  CHECK(parsed("[1, [2]]")->elements[1].elements[0].integer == 2);
  CHECK_FALSE(parsed("word").has_value());
  CHECK_FALSE(parsed("").has_value());
  CHECK_FALSE(parsed("1\nx = 2").has_value());
  CHECK_FALSE(parsed("[1").has_value());
  const source text(source_kind::override, "--set", "key=[1, \"\u00f6\", 3]", "/", 0);
  CHECK(parse_value(text, 4)->elements[2].at.text() == "3");
}
