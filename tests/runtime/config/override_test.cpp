// Settings from the environment and from --set.
#include "support.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fmt/core.h>

using namespace penstock;
using namespace penstock::config_file;
using namespace penstock::config_file::testing;

namespace {

const std::string synthetic = "[dataset]\ntype = \"synthetic\"\n";

loading with_set(std::vector<std::string> overrides) {
  return load_text(synthetic, {}, std::move(overrides));
}
loading with_variable(const std::string& name, const std::string& value) {
  return load_text(synthetic, {{name, value}});
}

}  // namespace

TEST_CASE("an override takes TOML values of every kind") {
  const loading result =
      with_set({"loader.workers=4", "sampler.shuffle=false", "image.size=[1, 2]", "sampler . seed = 0x1F",
                "gpu.device = host ", "loader.restart.intensity={max=2, within=\"10s\"}", "image.flip=1",
                "dataset.faults=[{sample=1}, {sample=2, kind='kill'}]"});
  INFO(complaints_of(result));
  REQUIRE(result);
  CHECK(result->values.loader.workers == 4U);
  CHECK_FALSE(result->values.sampler.shuffle);
  CHECK(result->values.image.size == size_2d{1, 2});
  CHECK(result->values.sampler.seed == 31);
  CHECK(result->values.gpu.device == "host");
  CHECK(result->values.loader.restart.intensity.max == 2);
  CHECK(result->values.dataset.faults.size() == 2);
}

TEST_CASE("an override takes a word that is not TOML as a string") {
  const loading result =
      with_set({"gpu.device=cuda:1", "loader.hang.item_timeout=30s", "log.level=debug", "loader.workers=auto",
                "loader.limits.memory=3GiB", "loader.env.A=b=c", "metrics.listen=[::1]:80"});
  INFO(complaints_of(result));
  REQUIRE(result);
  CHECK(result->values.gpu.device == "cuda:1");
  CHECK(result->values.loader.hang.item_timeout == std::chrono::seconds(30));
  CHECK(result->values.log.level == log_level::debug);
  CHECK(result->values.loader.env.at("A") == "b=c");
  CHECK(result->values.metrics.listen == "[::1]:80");
}

TEST_CASE("where a string is expected, a number is taken as a string") {
  const loading result = with_set(
      {"name=42", "loader.env.N=4", "loader.env.\"A.B\"=true", "vars.d=2024-01-01", "loader.env.Q=\"4\""});
  INFO(complaints_of(result));
  REQUIRE(result);
  CHECK(result->values.name == "42");
  CHECK(result->values.loader.env.at("N") == "4");
  CHECK(result->values.loader.env.at("A.B") == "true");
  CHECK(result->values.loader.env.at("Q") == "4");
  CHECK(result->values.vars.at("d") == "2024-01-01");
}

TEST_CASE("the error about an integer of more than 64 bits says so, and does not suggest removing quotes") {
  CHECK(complaints_of(with_set({"sampler.seed=18446744073709551615"}))
            .find("must be at most 9223372036854775807") != std::string::npos);
  CHECK(complaints_of(with_variable("PENSTOCK__LOADER__WORKERS", "-99999999999999999999"))
            .find("must be at least -9223372036854775808") != std::string::npos);
}

TEST_CASE("the last of several --set wins") {
  CHECK(with_set({"sampler.seed=1", "sampler.seed=2"})->values.sampler.seed == 2);
}

TEST_CASE("an overridden value may refer to a missing variable, but an invalid one is still an error") {
  CHECK(load_text("[dataset]\npath = \"${env:UNSET}\"\n", {}, {"dataset.path=/x"})->values.dataset.path ==
        "/x");
  CHECK_FALSE(load_text("[dataset]\npath = \"${nonsense}\"\n", {}, {"dataset.path=/x"}).has_value());
  CHECK_FALSE(load_text("[dataset]\npath = 5\n", {}, {"dataset.path=/x"}).has_value());
}

TEST_CASE("an error about an option other than --set names that option") {
  const temporary_folder folder;
  source_request request;
  request.file = folder.write("test.toml", synthetic);
  request.working_folder = folder.path();
  request.overrides = {{"loader.workers=4", "--workers"}};
  CHECK(load(request)->source_of("loader.workers").text() == "--workers");
  request.overrides = {{"loader.workers=many", "--workers"}};
  const loading result = load(request);
  REQUIRE_FALSE(result);
  CHECK(result.error().diagnostics[0].where ==
        excerpt{"--workers", 0, 16, 4, 1, "loader.workers=many", "found a string"});
}

TEST_CASE("a variable sets a key at any depth") {
  const loading result = load_text(synthetic, {{"PENSTOCK__LOADER__RESTART__BACKOFF__BASE", "1s"},
                                               {"PENSTOCK__NAME", "7"},
                                               {"PENSTOCK__GPU__MEAN", "[1, 2, 3]"},
                                               {"PENSTOCK__GPU__RESTART", "{ intensity = { max = 9 } }"}});
  INFO(complaints_of(result));
  REQUIRE(result);
  CHECK(result->values.loader.restart.backoff.base == std::chrono::seconds(1));
  CHECK(result->values.name == "7");
  CHECK(result->values.gpu.mean == rgb_values{1, 2, 3});
  CHECK(result->values.gpu.restart.intensity.max == 9);
}

TEST_CASE("entries of maps keep the case of their variable, and its double underscores") {
  const loading result =
      load_text(synthetic, {{"PENSTOCK__LOADER__ENV__Path__x", "1"}, {"PENSTOCK__VARS__data", "d"}});
  INFO(complaints_of(result));
  REQUIRE(result);
  CHECK(result->values.loader.env.at("Path__x") == "1");
  CHECK(result->values.vars.at("data") == "d");
}

TEST_CASE("a variable with one underscore is not ours") {
  CHECK(with_variable("PENSTOCK_LIBEXEC", "/usr").has_value());
  CHECK(with_variable("PENSTOCK_LOADER__WOKERS", "4").has_value());
}

TEST_CASE("a variable that names no key is refused") {
  CHECK_FALSE(with_variable("PENSTOCK__", "1").has_value());
  CHECK_FALSE(with_variable("PENSTOCK__LOADER__", "1").has_value());
  CHECK_FALSE(with_variable("PENSTOCK__LOADER__WORKERS__X", "1").has_value());
  CHECK_FALSE(with_variable("PENSTOCK__DATASET__FAULTS[]__SAMPLE", "1").has_value());
  CHECK_FALSE(with_variable("PENSTOCK__LOADER.WORKERS", "1").has_value());
}

TEST_CASE("a value of several lines cannot smuggle in a second key") {
  const loading result = with_variable("PENSTOCK__NAME", "4\nschema = 7");
  REQUIRE_FALSE(result);
  REQUIRE(result.error().diagnostics.size() == 1);
  CHECK(result.error().diagnostics[0].key == "name");
}

TEST_CASE("an override that is not UTF-8 can still be shown") {
  const loading result = with_variable("PENSTOCK__LOADER__WORKERS", "caf\xe9\x1b[31m");
  REQUIRE_FALSE(result);
  const std::string shown = render(result.error().diagnostics, colour::off);
  CHECK(shown.find("PENSTOCK__LOADER__WORKERS=caf\\xe9\\x1b[31m") != std::string::npos);
  CHECK(shown.find(fmt::format("| {:26}^^^^^^^^^^^^^^^ found a string", "")) != std::string::npos);
  CHECK_FALSE(to_json(result.error().diagnostics).empty());
}
