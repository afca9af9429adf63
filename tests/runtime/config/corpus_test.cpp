// The corpus: good files load, bad files get exactly the diagnostics that their first lines list, and the JSON Schema accepts and rejects
// the same files.
#include "runtime/config/describe.hpp"
#include "runtime/config/document.hpp"
#include "schema_check.hpp"
#include "support.hpp"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>
#include <sstream>

using namespace penstock;
using namespace penstock::config_file;
using namespace penstock::config_file::testing;

namespace {

std::uint32_t characters(std::string_view text) {
  return static_cast<std::uint32_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; }));
}

std::string line_of(const std::filesystem::path& file, std::uint32_t number) {
  std::istringstream lines(read_text(file));
  std::string line;
  for (std::uint32_t i = 0; i < number; ++i) std::getline(lines, line);
  if (line.ends_with('\r')) line.pop_back();
  return line;
}

void check_diagnostics(const corpus_file& file, const std::vector<diagnostic>& found) {
  INFO(render(found, colour::off));
  CHECK(found.size() == file.expected.size());
  for (std::size_t i = 0; i < std::min(found.size(), file.expected.size()); ++i) {
    const corpus_file::expectation& expected = file.expected[i];
    const excerpt& where = found[i].where;
    INFO("diagnostic " << i << ": " << found[i].message);
    CHECK(found[i].level == expected.level);
    CHECK(where.origin == (expected.origin.empty() ? file.name : expected.origin));
    CHECK(where.line == expected.line);
    CHECK(where.column == expected.column);
    CHECK(where.length == expected.length);
    const std::string said = found[i].message + (where.label.empty() ? "" : " | " + where.label);
    CHECK(said.find(expected.fragment) != std::string::npos);
    if (where.line == 0) continue;
    CHECK(where.source_line == line_of(file.request.working_folder / where.origin, where.line));
    CHECK(where.column + where.length <= characters(where.source_line) + 2);
    CHECK(where.source_column == 1);
  }
}

nlohmann::json as_json(const node& from) {
  switch (from.kind) {
    case node_kind::boolean: return from.boolean;
    case node_kind::integer: return from.integer;
    case node_kind::number: return from.number;
    case node_kind::text: return from.text;
    case node_kind::time: return "1979-05-27";
    case node_kind::array: {
      nlohmann::json elements = nlohmann::json::array();
      for (const node& element : from.elements) elements.push_back(as_json(element));
      return elements;
    }
    case node_kind::table: break;
  }
  nlohmann::json members = nlohmann::json::object();
  for (const member& one : from.members) members[one.name] = as_json(one.value);
  return members;
}

/// The file as JSON; null if it is not valid TOML.
nlohmann::json json_of(const corpus_file& file) {
  const source text(source_kind::file, file.name, read_text(file.request.working_folder / file.name), "/", 0);
  complaints found;
  const document parsed = parse_document(text, found);
  return found.has_errors() ? nlohmann::json() : as_json(parsed.trees.front());
}

}  // namespace

TEST_CASE("a good file loads with exactly the warnings that it lists") {
  const std::vector<corpus_file> files = corpus("good");
  CHECK(files.size() >= 12);
  for (const corpus_file& file : files) {
    INFO(file.name);
    const loading result = load(file.request);
    INFO(complaints_of(result));
    REQUIRE(result.has_value());
    check_diagnostics(file, result->warnings);
  }
}

TEST_CASE("a bad file gets exactly its diagnostics, each at its line and column, in order") {
  const std::vector<corpus_file> files = corpus("bad");
  CHECK(files.size() >= 40);
  for (const corpus_file& file : files) {
    INFO(file.name);
    const loading result = load(file.request);
    REQUIRE_FALSE(result.has_value());
    CHECK(result.error().code == errc::config);
    CHECK_FALSE(file.expected.empty());
    check_diagnostics(file, result.error().diagnostics);
  }
}

TEST_CASE("a dozen planted mistakes give a dozen diagnostics") {
  for (const corpus_file& file : corpus("bad")) {
    if (file.name != "a-dozen-mistakes.toml") continue;
    const loading result = load(file.request);
    REQUIRE_FALSE(result.has_value());
    CHECK(result.error().diagnostics.size() == 12);
    std::set<std::string> kinds;
    for (const diagnostic& one : result.error().diagnostics) kinds.insert(one.message);
    CHECK(kinds.size() == 12);
    return;
  }
  FAIL("the file is not in the corpus");
}

TEST_CASE("the schema accepts every good file and rejects every mistake that a schema can express") {
  const nlohmann::json schema = nlohmann::json::parse(json_schema());
  for (const corpus_file& file : corpus("good")) {
    INFO(file.name);
    CHECK(schema_mismatch(schema, json_of(file)).empty());
  }
  for (const corpus_file& file : corpus("bad")) {
    const nlohmann::json value = json_of(file);
    if (value.is_null()) continue;
    INFO(file.name);
    CHECK(schema_mismatch(schema, value).empty() == file.schema_accepts);
  }
}

TEST_CASE("the printed effective config of every good file loads again as the same config without warnings") {
  const temporary_folder folder;
  for (const corpus_file& file : corpus("good")) {
    INFO(file.name);
    const loading once = load(file.request);
    REQUIRE(once.has_value());
    const std::string printed = print_effective(*once);
    INFO(printed);
    const loading again = load_text(folder, printed);
    INFO(complaints_of(again));
    REQUIRE(again.has_value());
    CHECK(again->values == once->values);
    CHECK(print_effective(*again).size() > 0);
    const loading plain = load_text(folder, print_values(once->values));
    INFO(complaints_of(plain));
    REQUIRE(plain.has_value());
    CHECK(plain->values == once->values);
    CHECK(again->warnings.size() <= once->warnings.size());
  }
}
