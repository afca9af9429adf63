// Diagnostics as text and as JSON.
#include "support.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

using namespace penstock;
using namespace penstock::config_file;
using namespace penstock::config_file::testing;

namespace {

std::string shown(std::string_view text, environment_list environment = {},
                  std::vector<std::string> overrides = {}) {
  return fmt::format("\n{}", complaints_of(load_text(text, std::move(environment), std::move(overrides))));
}

}  // namespace

TEST_CASE("a diagnostic shows message, place, line, caret and label") {
  CHECK(shown("[dataset]\ntype = \"synthetic\"\n\n\n\n\n\n\n\n\n[loader]\nwokers = 4\n") == R"(
error: unknown key 'wokers' in [loader]
  --> test.toml:12:1
   |
12 | wokers = 4
   | ^^^^^^ did you mean 'workers'?
)");
}

TEST_CASE("the caret is below its value after tabs and wide characters") {
  CHECK(shown("[dataset]\ntype = \"synthetic\"\n[loader.env]\n\"漢字\"\t=\t7 # é\n") == R"(
error: '漢字' in [loader.env] must be a string
 --> test.toml:4:8
  |
4 | "漢字"    =    7 # é
  |                ^ write "7"
)");
  CHECK(shown("[dataset]\ntype = \"漢字é\"\n") == R"(
error: 'type' in [dataset] cannot be "漢字é"
 --> test.toml:2:8
  |
2 | type = "漢字é"
  |        ^^^^^^^ no such value
  |
  = help: type is one of "image-folder", "tar", "npy", "raw", "tokens", "synthetic" or "custom"
)");
}

TEST_CASE("two places in one file are shown together, in the order of their lines") {
  CHECK(shown("[dataset]\ntype = \"synthetic\"\n[loader]\nworkers = 9\nstart = \"lazy\"\nlimits = { max = 8 "
              "}\n") == R"(
error: 'workers' 9 in [loader] is above 'max' 8 in [loader.limits]
 --> test.toml:4:11
  |
4 | workers = 9
  |           ^ must be at most 8
...
6 | limits = { max = 8 }
  |                  - contradicts this
)");
  CHECK(shown("name = \"a\"\nname = \"b\"\n[dataset]\ntype = \"synthetic\"\n") == R"(
error: 'name' is given twice
 --> test.toml:2:1
  |
1 | name = "a"
  | ---- first given here
2 | name = "b"
  | ^^^^ given again here
)");
}

// The reason for the key scanner (toml_scan.hpp): toml++ stops at the first duplicate key and does not say
// where the first one is.
TEST_CASE("for every duplicate key both places are shown, and later mistakes are reported too") {
  CHECK(shown("[dataset]\ntype = \"synthetic\"\ntype = \"raw\"\n[log]\nlevel = \"info\"\n[dataset]\nsamples "
              "= \"many\"\n") ==
        R"(
error: 'type' is given twice in [dataset]
 --> test.toml:3:1
  |
2 | type = "synthetic"
  | ---- first given here
3 | type = "raw"
  | ^^^^ given again here

error: the table [dataset] is written twice
 --> test.toml:6:2
  |
1 | [dataset]
  |  ------- first written here
...
6 | [dataset]
  |  ^^^^^^^ written again here
  |
  = help: put all keys of a table under one header

error: 'samples' in [dataset] must be a whole number
 --> test.toml:7:11
  |
7 | samples = "many"
  |           ^^^^^^ found a string
)");
}

TEST_CASE("an unclosed array is shown where it was opened, and not only where parsing failed") {
  const std::string text = shown("[dataset]\nshape = [3,\n4\n[loader]\nworkers = 2\n");
  INFO(text);
  CHECK(text.find("2 | shape = [3,\n  | ----- the value of this key was not closed") != std::string::npos);
}

TEST_CASE("an option and a variable are shown without a line number") {
  CHECK(shown("[dataset]\ntype = \"synthetic\"\n", {{"PENSTOCK__LOADER__WOKERS", "4"}},
              {"loader.workers=four"}) == R"(
error: unknown key 'wokers' in [loader]
 --> environment
  |
  | PENSTOCK__LOADER__WOKERS=4
  |                   ^^^^^^ did you mean 'WORKERS'?

error: 'workers' in [loader] must be a whole number or "auto"
 --> --set
  |
  | loader.workers=four
  |                ^^^^ found a string
)");
}

TEST_CASE("of a long line, the part around the caret is shown") {
  const std::string text = "dataset = { type = \"synthetic\", shape = [" + std::string(300, ' ') + "0" +
                           std::string(300, ' ') + "] }\n";
  const std::string lines = shown(text);
  INFO(lines);
  const std::size_t line = lines.find("1 | ...");
  REQUIRE(line != std::string::npos);
  const std::size_t caret_line = lines.find("\n  | ", line);
  CHECK(lines.find('0', line) - line == lines.find('^', caret_line) - caret_line - 1);
  CHECK(caret_line - line < 160);
}

TEST_CASE("no byte of a file reaches the terminal as a control character") {
  const std::string text = complaints_of(
      load_text("\"\\u001b[31m\" = 1\n[dataset]\ntype = \"synthetic\"\n", {{"PENSTOCK__A\x1b", "\x1b"}}));
  CHECK(text.find('\x1b') == std::string::npos);
}

TEST_CASE("colours are used only on request") {
  const loading result = load_text("wokers = 1\n[dataset]\ntype = \"synthetic\"\n");
  const std::string coloured = render(result.error().diagnostics, colour::on);
  CHECK(coloured.find("\x1b[1;31merror\x1b[0m") != std::string::npos);
  CHECK(render({}, colour::on).empty());
}

TEST_CASE("the JSON has every field, and null where the value is unknown") {
  const loading result =
      load_text("[loader]\nworkers = 9\n[loader.limits]\nmax = 8\n[dataset]\ntype = \"synthetic\"\n", {},
                {"gpu.buffers=0"});
  REQUIRE_FALSE(result);
  const nlohmann::json all = nlohmann::json::parse(to_json(result.error().diagnostics));
  REQUIRE(all.size() == 2);
  CHECK(all[0] == nlohmann::json::parse(R"({
    "severity": "error", "message": "'workers' 9 in [loader] is above 'max' 8 in [loader.limits]", "key": "loader.workers",
    "file": "test.toml", "line": 2, "column": 11, "length": 1, "label": "must be at most 8", "source_line": "workers = 9", "source_column": 1,
    "help": null, "related": [{"file": "test.toml", "line": 4, "column": 7, "length": 1, "label": "contradicts this", "source_line": "max = 8", "source_column": 1}]
  })"));
  CHECK(all[1]["file"] == "--set");
  CHECK(all[1]["line"].is_null());
  CHECK(all[1]["column"] == 13);
  CHECK(nlohmann::json::parse(to_json({})).empty());
}

TEST_CASE("a summary counts errors and warnings") {
  diagnostic error;
  diagnostic warning;
  warning.level = severity::warning;
  CHECK(summary_of({error}) == "1 error");
  CHECK(summary_of({error, error, warning}) == "2 errors, 1 warning");
  CHECK(summary_of({warning, warning}) == "2 warnings");
  CHECK(summary_of({}) == "0 errors");
}
