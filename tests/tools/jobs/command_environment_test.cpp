#include "tools/penstock/jobs/command_environment.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::cli;
using config_file::provenance_kind;
using strings = std::vector<std::string>;

TEST_CASE("commands get the GPUs and cores that workers of a pool do not get, but never a group's secret") {
  const config_file::loaded_config loaded;
  config settings;
  CHECK(give_callers_environment(
            loaded, {{"CUDA_VISIBLE_DEVICES", "0,1"}, {"PENSTOCK_GROUP_SECRET", "x"}, {"A", "b"}},
            settings) == strings{"CUDA_VISIBLE_DEVICES=0,1"});
  CHECK(settings.loader.env.empty());
  CHECK(settings.gpu.exclusive == exclusive_rule::off);
}

TEST_CASE("commands lack variables that the caller lacks") {
  config settings;
  CHECK(give_callers_environment({}, {}, settings) == strings{"CUDA_VISIBLE_DEVICES"});
}

TEST_CASE("variables that the config sets reach commands, too") {
  config_file::loaded_config loaded;
  loaded.sources["loader.env.OMP_NUM_THREADS"] = {provenance_kind::file, "jobs.toml", 3};
  loaded.sources["gpu.exclusive"] = {provenance_kind::file, "jobs.toml", 4};
  config settings;
  settings.loader.env = {{"OMP_NUM_THREADS", "1"}, {"CUDA_VISIBLE_DEVICES", "3"}};
  settings.gpu.exclusive = exclusive_rule::report;
  CHECK(give_callers_environment(loaded, {{"CUDA_VISIBLE_DEVICES", "0"}}, settings) ==
        strings{"CUDA_VISIBLE_DEVICES=3"});
  CHECK(settings.loader.env.contains("OMP_NUM_THREADS"));
  CHECK(settings.gpu.exclusive == exclusive_rule::report);
}
