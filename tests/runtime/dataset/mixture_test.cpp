// [[datasets]]: the samples of a mixture, and which datasets cannot be mixed.
#include "runtime/dataset/mixture/mixture.hpp"

#include "runtime/dataset/factory.hpp"
#include "tests/runtime/dataset/fixtures.hpp"
#include "tests/runtime/dataset/loading.hpp"
#include "tests/runtime/dataset/tar/archives.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cstring>

using namespace penstock;
using testing::temporary_folder;

namespace {

mixed_dataset_config synthetic(const std::string& name, double weight, std::uint64_t samples,
                               fill_kind fill) {
  mixed_dataset_config one;
  one.name = name;
  one.weight = {weight};
  one.dataset.type = dataset_type::synthetic;
  one.dataset.samples = samples;
  one.dataset.shape = {5000};
  one.dataset.fill = fill;
  return one;
}

config mixture(std::vector<mixed_dataset_config> datasets) {
  config all;
  all.datasets = std::move(datasets);
  all.sampler.epoch_samples = 100;
  return all;
}

std::unique_ptr<Dataset> made(const config& all) {
  const auto prepared = prepare_stream(all);
  REQUIRE(prepared);
  auto dataset = make_dataset(all, prepared->descriptors());
  REQUIRE(dataset);
  CHECK((*dataset)->describe() == prepared->description);
  (*dataset)->setup({0, 1, 1});
  return std::move(*dataset);
}

std::string refusal(const config& all) {
  const auto prepared = prepare_stream(all);
  REQUIRE_FALSE(prepared);
  return prepared.error().message;
}

}  // namespace

TEST_CASE("a mixture numbers its samples dataset by dataset, and each sample names its dataset") {
  const temporary_folder folder;
  folder.write("raw/0", std::string(5000, 'x') + std::string(5000, 'y'));
  config all = mixture({synthetic("a", 1, 3, fill_kind::stamp), synthetic("b", 2, 4, fill_kind::memset)});
  all.datasets.push_back({});
  all.datasets[2].name = "c";
  all.datasets[2].dataset.type = dataset_type::raw;
  all.datasets[2].dataset.path = folder.path("raw");
  all.datasets[2].dataset.shape = {5000};
  const auto dataset = made(all);
  const dataset_description described = dataset->describe();
  CHECK(described.type == "mixture");
  CHECK(described.samples == 9);
  REQUIRE(described.tensors.size() == 2);
  CHECK(described.tensors[1] == tensor_spec{"source", dtype::int32, {}});
  CHECK(dataset->name_of(2) == "a:sample 2");
  CHECK(dataset->name_of(3) == "b:sample 0");
  CHECK(dataset->name_of(8) == "c:0[1]");
  // Loaded alternately into one row: each dataset overwrites all bytes of the others.
  testing::sample_memory row(described);
  for (const std::uint64_t sample : {8, 1, 6, 2, 7, 0}) {
    testing::load_into(*dataset, sample, row);
    const auto bytes = row.tensor(0);
    std::int32_t source = -1;
    std::memcpy(&source, row.tensor(1).data(), sizeof source);
    CHECK(source == (sample < 3 ? 0 : sample < 7 ? 1 : 2));
    if (sample < 3) CHECK(bytes[4095] == std::byte{0});
    if (sample < 3) CHECK(bytes[4096] == static_cast<std::byte>(sample));
    if (sample == 6) CHECK(bytes[4095] == std::byte{3});
    if (sample == 8) CHECK(bytes[4095] == std::byte{'y'});
  }
}

TEST_CASE("datasets with different tensors are refused, and both are named") {
  config all = mixture({synthetic("a", 1, 3, fill_kind::stamp), synthetic("b", 1, 3, fill_kind::stamp)});
  all.datasets[1].dataset.dtype = dtype::int16;
  CHECK(refusal(all) ==
        "the datasets 'a' and 'b' cannot be mixed: their tensors must have the same names, element types and "
        "shapes, but "
        "'a' has data uint8 [5000], and 'b' has data int16 [5000]");
}

TEST_CASE("an error in one dataset of a mixture names that dataset") {
  config all = mixture({synthetic("a", 1, 3, fill_kind::stamp), synthetic("b", 1, 3, fill_kind::stamp)});
  all.datasets[1].dataset.type = dataset_type::raw;
  all.datasets[1].dataset.path = "/nowhere/at/all";
  CHECK(refusal(all) == "the dataset 'b' of the mixture: the dataset '/nowhere/at/all' does not exist");
  const temporary_folder folder;
  folder.write("empty/0", "");
  all.datasets[1].dataset.path = folder.path("empty");
  CHECK(refusal(all).find("'b'") != std::string::npos);
}

TEST_CASE("texts of two shard datasets share a tensor that fits the longest text of both") {
  const temporary_folder folder;
  const auto shards = [&](const std::string& name, const std::string& text) {
    folder.write(name + ".tar", testing::archive_of({{"0.txt", text}}));
    mixed_dataset_config one;
    one.name = name;
    one.dataset.type = dataset_type::tar;
    one.dataset.path = folder.path(name + ".tar");
    one.dataset.members = {{"text", "txt"}};
    return one;
  };
  const auto dataset = made(mixture({shards("a", "short"), shards("b", "rather long")}));
  CHECK(dataset->describe().tensors[0].shape == std::vector<std::uint32_t>{11});
}

TEST_CASE("fingerprint and order of a mixture depend on names, contents and weights") {
  const config base =
      mixture({synthetic("a", 1, 3, fill_kind::stamp), synthetic("b", 1, 3, fill_kind::stamp)});
  const auto of = [](const config& all) {
    const auto prepared = prepare_stream(all);
    return prepared->description.fingerprint + prepared->order.identity;
  };
  const auto differs = [&](auto change) {
    config other = base;
    change(other);
    return of(other) != of(base);
  };
  CHECK(differs([](config& c) { c.datasets[1].name = "c"; }));
  CHECK(differs([](config& c) { c.datasets[1].weight = {2}; }));
  CHECK(differs([](config& c) { c.datasets[1].weight = {1, 2}; }));
  CHECK(differs([](config& c) { c.datasets[1].dataset.samples = 4; }));
  CHECK(differs([](config& c) { c.datasets[1].sampler = sampler_kind::sequential; }));
  CHECK(differs([](config& c) { c.sampler.epoch_samples = 101; }));
  CHECK_FALSE(differs([](config& c) { c.datasets[0].weight = c.datasets[1].weight = {0.5}; }));
}

TEST_CASE("weights that were rounded are shown") {
  config all =
      mixture({synthetic("a", 0.123456789, 3, fill_kind::stamp), synthetic("b", 1, 3, fill_kind::stamp)});
  const auto prepared = prepare_stream(all);
  REQUIRE(prepared);
  REQUIRE(prepared->notices.size() == 1);
  CHECK(prepared->notices[0].find("from epoch 0 on, they are rounded to a 10989/100000, b 89011/100000") !=
        std::string::npos);
}
