// Configs built in code must follow the rules of config files.
#include "runtime/config/validate.hpp"

#include "runtime/config/describe.hpp"
#include "support.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fmt/core.h>

#include <cmath>

using namespace penstock;
using namespace penstock::config_file;
using namespace std::chrono_literals;

namespace {

penstock::config sound() {
  penstock::config values;
  values.dataset.type = dataset_type::synthetic;
  return values;
}

/// The keys with diagnostics, in order.
template <class Change>
std::vector<std::string> keys_after(Change change) {
  penstock::config values = sound();
  change(values);
  std::vector<std::string> keys;
  for (const diagnostic& one : validate(values)) keys.push_back(one.key);
  return keys;
}

using keys = std::vector<std::string>;

}  // namespace

TEST_CASE("a valid config gets no diagnostic") {
  CHECK(validate(sound()).empty());
  CHECK(keys_after([](auto& c) { c.sampler.rank = std::nullopt; }).empty());
  CHECK(keys_after([](auto& c) { c.gpu.placement = placement_rule::process; }).empty());
}

TEST_CASE("a config made from defaults alone has no path, which is an error") {
  const std::vector<diagnostic> found = validate(penstock::config());
  REQUIRE(found.size() == 1);
  CHECK(found[0].key == "dataset.path");
  CHECK(found[0].where.origin == "dataset.path");
}

TEST_CASE("all limits are checked, and all violations reported at once") {
  CHECK(keys_after([](auto& c) {
          c.schema = 2;
          c.name = "a b";
          c.dataset.samples = 0;
          c.dataset.work = -1ns;
          c.dataset.faults = {{0, fault_kind::slow, 1, 5000.0}};
          c.image.size = {0, 1};
          c.image.flip = std::nan("");
          c.sampler.batch_size = 0;
          c.loader.workers = 2000;
          c.loader.slot_bytes = byte_size{0};
          c.loader.command = {};
          c.loader.env = {{"A=B", "x"}};
          c.loader.hang.item_timeout = 1ns;
          c.loader.limits.memory = byte_size{1};
          c.quarantine.max_fraction = 1.5;
          c.gpu.device = "gpu";
          c.gpu.dtype = dtype::int8;
          c.gpu.std = {1, 0, 1};
          c.metrics.listen = "x";
          c.log.level = static_cast<log_level>(99);
        }) == keys{"schema",
                   "name",
                   "dataset.samples",
                   "dataset.work",
                   "dataset.faults",
                   "image.size",
                   "image.flip",
                   "sampler.batch_size",
                   "loader.workers",
                   "loader.slot_bytes",
                   "loader.command",
                   "loader.hang.item_timeout",
                   "loader.limits.memory",
                   "loader.env",
                   "quarantine.max_fraction",
                   "gpu.device",
                   "gpu.dtype",
                   "gpu.std",
                   "metrics.listen",
                   "log.level"});
}

TEST_CASE("a contradiction between keys names both") {
  CHECK(keys_after([](auto& c) { c.sampler.rank = 1; }) == keys{"sampler.rank"});
  CHECK(keys_after([](auto& c) { c.image.scale = {0.5, 0.4}; }) == keys{"image.scale"});
  CHECK(keys_after([](auto& c) { c.image.ratio = {2, 1}; }) == keys{"image.ratio"});
  CHECK(keys_after([](auto& c) { c.loader.workers = 65; }) == keys{"loader.workers"});
  CHECK(keys_after([](auto& c) { c.loader.limits.min = 65; }) == keys{"loader.limits.min"});
  CHECK(keys_after([](auto& c) {
          c.loader.workers = 1;
          c.loader.limits.min = 2;
        }) == keys{"loader.limits.min"});
  CHECK(keys_after([](auto& c) { c.loader.restart.backoff.base = 31s; }) ==
        keys{"loader.restart.backoff.base"});
  CHECK(keys_after([](auto& c) { c.loader.restart.backoff.factor = 1; }) ==
        keys{"loader.restart.backoff.factor"});
  CHECK(keys_after([](auto& c) {
          c.loader.restart.backoff.factor = 1;
          c.loader.restart.backoff.max = c.loader.restart.backoff.base;
        }).empty());
  CHECK(keys_after([](auto& c) {
          c.dataset.shape = {3};
          c.dataset.bytes_per_sample = byte_size{9};
        }) == keys{"dataset.bytes_per_sample"});
  CHECK(keys_after([](auto& c) {
          c.dataset.samples = 5;
          c.dataset.faults = {{4, fault_kind::segv, 1, 1.0}, {5, fault_kind::segv, 1, 1.0}};
        }) == keys{"dataset.faults[1].sample"});
  penstock::config values = sound();
  values.sampler.rank = 7;
  const std::vector<diagnostic> found = validate(values);
  REQUIRE(found.size() == 1);
  REQUIRE(found[0].related.size() == 1);
  CHECK(found[0].related[0].origin == "sampler.world_size");
}

TEST_CASE("for each type of dataset, the missing keys are named") {
  const auto with_type = [](dataset_type type, std::string path) {
    return keys_after([&](auto& c) {
      c.dataset.type = type;
      c.dataset.path = path;
    });
  };
  CHECK(with_type(dataset_type::image_folder, "") == keys{"dataset.path"});
  CHECK(with_type(dataset_type::npy, "") == keys{"dataset.path"});
  CHECK(with_type(dataset_type::raw, "") == keys{"dataset.path", "dataset.shape"});
  CHECK(with_type(dataset_type::raw, "x") == keys{"dataset.shape"});
  CHECK(with_type(dataset_type::tar, "") == keys{"dataset.path"});
  CHECK(with_type(dataset_type::tar, "x").empty());
  CHECK(with_type(dataset_type::tokens, "") == keys{"dataset.path"});
  CHECK(with_type(dataset_type::custom, "") == keys{"loader.command"});
  CHECK(keys_after([](auto& c) {
          c.dataset.type = dataset_type::custom;
          c.loader.command = {"my-worker"};
        }).empty());
  CHECK(with_type(dataset_type::image_folder, "x").empty());
}

TEST_CASE("a shape has at most 32 axes, whatever the type of the dataset") {
  const auto with_axes = [](dataset_type type, std::size_t axes) {
    return keys_after([&](auto& c) {
      c.dataset.type = type;
      c.dataset.path = "x";
      c.dataset.shape.assign(axes, 1);
    });
  };
  for (const dataset_type type : {dataset_type::raw, dataset_type::synthetic}) {
    CHECK(with_axes(type, 32).empty());
    CHECK(with_axes(type, 33) == keys{"dataset.shape"});
  }
}

TEST_CASE(
    "a group's communicator without a GPU is refused in every placement, and so is a lost_after that is too short") {
  for (const placement_rule placement : {placement_rule::process, placement_rule::embedded}) {
    const auto on = [&](const char* device) {
      return keys_after([&](auto& c) {
        c.group.communicator = communicator_kind::nccl;
        c.gpu.placement = placement;
        c.gpu.device = device;
      });
    };
    CHECK(on("host") == keys{"group.communicator"});
    CHECK(on("cuda:1").empty());
  }
  CHECK(keys_after([](auto& c) { c.group.lost_after = 1ms; }) == keys{"group.lost_after"});
}

TEST_CASE("ranks are compared only by what defines their stream") {
  const penstock::config base = sound();
  const auto same_with = [&](auto change) {
    penstock::config other = base;
    change(other);
    return stream_settings(other) == stream_settings(base);
  };
  CHECK_FALSE(same_with([](auto& c) { c.sampler.seed = 5; }));
  CHECK_FALSE(same_with([](auto& c) { c.sampler.batch_size = 5; }));
  CHECK_FALSE(same_with([](auto& c) { c.dataset.samples = 5; }));
  CHECK_FALSE(same_with([](auto& c) { c.image.flip = 0.25; }));
  CHECK_FALSE(same_with([](auto& c) { c.gpu.dtype = dtype::float32; }));
  CHECK_FALSE(same_with([](auto& c) { c.loader.on_bad_sample = bad_sample_rule::replace; }));
  CHECK_FALSE(same_with([](auto& c) { c.group.lost_after = 5s; }));
  CHECK(same_with([](auto& c) { c.sampler.rank = 1; }));
  CHECK(same_with([](auto& c) { c.sampler.world_size = 2; }));
  CHECK(same_with([](auto& c) { c.dataset.path = "/elsewhere"; }));
  CHECK(same_with([](auto& c) { c.dataset.faults = {{0, fault_kind::segv, 1, 1.0}}; }));
  CHECK(same_with([](auto& c) { c.loader.workers = 3; }));
  CHECK(same_with([](auto& c) { c.gpu.device = "host"; }));
  CHECK(same_with([](auto& c) { c.name = "other"; }));
}

TEST_CASE("a value that is itself wrong is not also reported as a contradiction") {
  CHECK(keys_after([](auto& c) {
          c.sampler.world_size = 0;
          c.sampler.rank = 3;
        }) == keys{"sampler.world_size"});
}

TEST_CASE("a diagnostic about a config without a text can be shown") {
  penstock::config values = sound();
  values.gpu.buffers = 0;
  CHECK(fmt::format("\n{}", render(validate(values), colour::off)) == R"(
error: 'buffers' in [gpu] is out of range
 --> gpu.buffers
  = must be between 1 and 1024
)");
}

TEST_CASE("a launcher's rank is adopted whole or not at all") {
  sampler_config sampler;
  sampler.rank = std::nullopt;
  CHECK_FALSE(adopt_launcher_rank(sampler, {}).has_value());
  CHECK_FALSE(adopt_launcher_rank(sampler, {{"RANK", "0"}}).has_value());
  CHECK_FALSE(adopt_launcher_rank(sampler, {{"RANK", "x"}, {"WORLD_SIZE", "2"}}).has_value());
  CHECK_FALSE(adopt_launcher_rank(sampler, {{"RANK", "0"}, {"WORLD_SIZE", ""}}).has_value());
  CHECK_FALSE(adopt_launcher_rank(sampler, {{"RANK", "2"}, {"WORLD_SIZE", "2"}}).has_value());
  CHECK_FALSE(adopt_launcher_rank(sampler, {{"RANK", "0"}, {"WORLD_SIZE", "0"}}).has_value());
  CHECK_FALSE(adopt_launcher_rank(sampler, {{"RANK", "0"}, {"WORLD_SIZE", "4294967295"}}).has_value());
  CHECK_FALSE(sampler.rank.has_value());
  CHECK(sampler.world_size == 1);
  REQUIRE(adopt_launcher_rank(sampler, {{"RANK", "1"}, {"WORLD_SIZE", "2"}}).has_value());
  CHECK(sampler.rank == 1U);
  CHECK(sampler.world_size == 2);
}
