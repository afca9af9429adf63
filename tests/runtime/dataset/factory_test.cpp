#include "runtime/dataset/factory.hpp"

#include "tests/runtime/dataset/fixtures.hpp"
#include "tests/runtime/dataset/loading.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using testing::temporary_folder;

TEST_CASE("session and worker get the same description of every built-in dataset type") {
  const temporary_folder folder;
  folder.write("pictures/a/1.jpg", testing::encode_jpeg(testing::make_raster({20, 10})));
  folder.write("raw/0", "aabb");
  config all;
  all.dataset.path = folder.path("pictures");
  const auto same = [&all] {
    const auto prepared = prepare_dataset(all);
    REQUIRE(prepared);
    const auto made = make_dataset(all, prepared->index.get());
    REQUIRE(made);
    CHECK((*made)->describe() == prepared->description);
    return prepared->description;
  };
  CHECK(same().samples == 1);
  all.dataset.type = dataset_type::raw;
  all.dataset.path = folder.path("raw");
  all.dataset.shape = {2};
  CHECK(same().samples == 2);
  all.dataset.type = dataset_type::synthetic;
  CHECK(same().samples == 1024);
  CHECK(prepare_dataset(all)->index.get() == -1);
}

TEST_CASE("ignored entries are reported once, when the dataset is prepared") {
  const temporary_folder folder;
  folder.write("a/1.jpg", "x");
  folder.write("1.jpg", "x");
  config all;
  all.dataset.path = folder.path();
  CHECK(prepare_dataset(all)->notices.size() == 1);
}

TEST_CASE("types that are not built in are refused by name") {
  config all;
  const auto refusal = [&all](dataset_type type) {
    all.dataset.type = type;
    CHECK_FALSE(make_dataset(all, -1));
    return prepare_dataset(all).error().message;
  };
  CHECK(refusal(dataset_type::custom) ==
        "[dataset] type = \"custom\": only its worker program knows this dataset ([loader] command)");
}

TEST_CASE("a worker refuses a missing index, and the index of another dataset type") {
  const temporary_folder folder;
  folder.write("a/1.jpg", "x");
  config all;
  all.dataset.path = folder.path();
  const auto prepared = prepare_dataset(all);
  REQUIRE(prepared);
  all.dataset.type = dataset_type::npy;
  CHECK(make_dataset(all, prepared->index.get()).error().message ==
        "the index belongs to a dataset of type image-folder, not npy");
  CHECK(make_dataset(all, -1).error().code == errc::protocol);
}

TEST_CASE("a missing dataset is refused when it is prepared") {
  config all;
  all.dataset.path = "/nowhere/at/all";
  CHECK(prepare_dataset(all).error().code == errc::dataset);
  all.dataset.type = dataset_type::npy;
  CHECK(prepare_dataset(all).error().message == "the dataset '/nowhere/at/all' does not exist");
}
