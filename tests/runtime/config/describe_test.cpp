// Schema, docs, explanations and printed configs, all from the key table.
#include "runtime/config/describe.hpp"

#include "runtime/config/key_table.hpp"
#include "runtime/config/rules.hpp"
#include "schema_check.hpp"
#include "support.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

using namespace penstock;
using namespace penstock::config_file;
using namespace penstock::config_file::testing;

TEST_CASE("docs/config.md is what the key table says") {
  // To regenerate it: PENSTOCK_WRITE_DOCS=1 bin/test_config "docs/config.md is what the key table says"
  if (std::getenv("PENSTOCK_WRITE_DOCS") != nullptr) {
    std::ofstream(PENSTOCK_CONFIG_DOCS, std::ios::binary) << reference_markdown();
  }
  CHECK(read_text(PENSTOCK_CONFIG_DOCS) == reference_markdown());
}

TEST_CASE("every key is in the schema, in the docs and in the explanations") {
  const nlohmann::json schema = nlohmann::json::parse(json_schema());
  const std::string docs = reference_markdown();
  const std::string explained = explain();
  for (const key_info& key : key_table::get().keys()) {
    INFO(key.path);
    CHECK(docs.find(fmt::format("| `{}` |", key.name)) != std::string::npos);
    CHECK(explained.find(fmt::format("\n  {} = ", key.name)) != std::string::npos);
    if (in_array(key)) continue;
    const nlohmann::json* place = &schema;
    std::istringstream parts(key.path);
    for (std::string part; std::getline(parts, part, '.');) {
      REQUIRE((*place)["properties"].contains(part));
      place = &(*place)["properties"][part];
    }
    CHECK(place->contains("description"));
  }
}

TEST_CASE("every table has a header, an actor and a meaning") {
  for (const table_info& table : key_table::get().tables()) {
    INFO(table.path);
    CHECK_FALSE(table.help.empty());
    CHECK_FALSE(key_table::get().actor_of(table.path).empty());
  }
  CHECK(key_table::get().actor_of("loader.restart.backoff") == "the loader worker actor and its pool");
  CHECK(key_table::get().actor_of("gpu.restart") == "the GPU owner actor");
}

TEST_CASE("every default is within its limits and can be written and read back") {
  const penstock::config defaults;
  for (const key_info& key : key_table::get().keys()) {
    INFO(key.path << " = " << key.default_text);
    if (in_array(key)) continue;
    std::vector<breach> found;
    key.value->check(key.locate_in(&defaults), key.form, key.limits, found);
    CHECK(found.empty());
    CHECK(key.is_default(&defaults));
  }
  CHECK(load_text("dataset.type = \"synthetic\"\n[dataset]\n").has_value() == false);  // a table must not be defined twice
}

TEST_CASE("the schema knows draft-07 keywords only and refuses unknown keys in every table") {
  const nlohmann::json schema = nlohmann::json::parse(json_schema());
  CHECK(schema["$schema"] == "http://json-schema.org/draft-07/schema#");
  CHECK_FALSE(schema.contains("required"));
  CHECK_FALSE(
      schema_mismatch(schema, nlohmann::json::parse(R"({"loader":{"restart":{"backoff":{"bse":"1s"}}}})"))
          .empty());
  CHECK_FALSE(
      schema_mismatch(schema, nlohmann::json::parse(R"({"dataset":{"faults":[{"smaple":1}]}})")).empty());
  CHECK(schema_mismatch(schema, nlohmann::json::parse(R"({"loader":{"env":{"ANY":"1"}},"vars":{"x":"y"}})"))
            .empty());
  CHECK(schema_mismatch(schema, nlohmann::json::object()).empty());
}

TEST_CASE("the schema accepts references in every type of value, and no other string for a number") {
  const nlohmann::json schema = nlohmann::json::parse(json_schema());
  CHECK(schema_mismatch(schema, nlohmann::json::parse(
                                    R"({"log":{"level":"${env:LEVEL}"},"supervisor":{"shutdown":"${env:S}s"},
    "gpu":{"device":"${var:d}"},"loader":{"workers":"${env:W:-auto}"}})"))
            .empty());
  CHECK(schema_mismatch(schema, nlohmann::json::parse(
                                    R"({"sampler":{"seed":"${env:SEED}","shuffle":"${env:SHUFFLE}"}})"))
            .empty());
  CHECK_FALSE(schema_mismatch(schema, nlohmann::json::parse(R"({"sampler":{"seed":"12"}})")).empty());
}

TEST_CASE("the explanation says which table configures which actor") {
  const std::string text = explain();
  CHECK(text.find("[loader]                    the loader worker actor and its pool:") != std::string::npos);
  CHECK(text.find("[scheduler]                 the scheduler actor:") != std::string::npos);
  CHECK(text.find("[gpu]                       the GPU owner actor:") != std::string::npos);
  CHECK(text.find("[supervisor]                the supervisor actor:") != std::string::npos);
  CHECK(text.find("[image]                     the data:") != std::string::npos);
}

TEST_CASE("a printed config shows where each value came from") {
  const temporary_folder folder;
  folder.write("base.toml", "[loader]\nslots_per_worker = 5\n");
  const loading result = load_text(
      folder, "include = [\"base.toml\"]\n[dataset]\ntype = \"synthetic\"\n[loader.env]\nA = \"x\\ty\"\n",
      {{"PENSTOCK__GPU__BUFFERS", "2"}, {"RANK", "0"}, {"WORLD_SIZE", "1"}},
      {"log.level=off", "sampler.rank=auto"});
  INFO(complaints_of(result));
  REQUIRE(result);
  const std::string text = print_effective(*result);
  INFO(text);
  CHECK(text.find("name = \"test\"  # from the file's name\n") != std::string::npos);
  CHECK(text.find("include = []   # merged: base.toml\n") != std::string::npos);
  CHECK(text.find("type = \"synthetic\"         # test.toml:3\n") != std::string::npos);
  CHECK(text.find("slots_per_worker = 5           # include base.toml:2\n") != std::string::npos);
  CHECK(text.find("A = \"x\\ty\"             # test.toml:5\n") != std::string::npos);
  CHECK(text.find("buffers = 2                   # environment PENSTOCK__GPU__BUFFERS\n") !=
        std::string::npos);
  CHECK(text.find("level = \"off\"  # --set\n") != std::string::npos);
  CHECK(text.find("rank = 0           # from RANK and WORLD_SIZE\n") != std::string::npos);
  CHECK(text.find("workers = \"auto\"               # default\n") != std::string::npos);
}

TEST_CASE("every key named in rules and conditions exists") {
  std::set<std::string> named;
  penstock::config values;
  values.dataset.type = dataset_type::raw;
  values.sampler.rank = 3;
  values.image.scale = values.image.ratio = {2, 1};
  values.loader.workers = 70;
  values.loader.limits.min = 65;
  values.loader.restart.backoff.base = std::chrono::hours(1);
  for (const contradiction& rule : contradictions_of(values)) named.insert({rule.key, rule.other});
  values.dataset.type = dataset_type::synthetic;
  values.dataset.shape = {1};
  values.dataset.bytes_per_sample = byte_size{1};
  values.loader.limits.min = 2;
  values.loader.workers = 1;
  values.loader.restart.backoff = {};
  values.loader.restart.backoff.factor = 1;
  for (const contradiction& rule : contradictions_of(values)) named.insert({rule.key, rule.other});
  for (const key_info& key : key_table::get().keys()) {
    for (const auto& [decided_by, wanted] : conditions_of(key.use)) named.insert(std::string(decided_by));
  }
  named.erase("");
  CHECK(named.size() > 12);
  for (const std::string& path : named) {
    INFO(path);
    CHECK(key_table::get().find(path) != nullptr);
  }
}
