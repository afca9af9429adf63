// Which ranks share the listing of their dataset.
#include "actors/session/shared_listing.hpp"

#include <catch2/catch_test_macros.hpp>

#include <unistd.h>

#include <filesystem>
#include <functional>
#include <string>

using namespace penstock;
using session::shared_listing_name;

namespace {

struct rank {
  config settings;
  group::group_setup group;
  launcher_place place;

  explicit rank(std::uint32_t number) {
    place.rank = number;
    place.world_size = 4;
    place.local_world_size = 4;
    place.job = "job-7";
    group.links.group = "job-7/photos";
    group.links.address.name = "penstock/job-7/photos";
    settings.name = "photos-rank" + std::to_string(number);
    settings.sampler.rank = number;
    settings.sampler.world_size = 4;
    settings.dataset.path = "/";
  }
  [[nodiscard]] std::string name() const { return shared_listing_name(settings, group, place); }
};

std::string name_if(const std::function<void(rank&)>& change) {
  rank one(1);
  change(one);
  return one.name();
}

}  // namespace

TEST_CASE("ranks of one group on one host share a listing, whatever their numbers and workers") {
  rank other(2);
  other.settings.loader.workers = 7;
  CHECK(rank(1).name() == other.name());
  CHECK(rank(1).name().size() < 100);
}

TEST_CASE("sessions of other jobs, groups or datasets do not share the listing of a rank") {
  const std::string name = rank(1).name();
  CHECK(name_if([](rank& r) { r.group.links.group = "job-8/photos"; }) != name);
  CHECK(name_if([](rank& r) { r.group.links.address.name = "penstock/job-8/photos"; }) != name);
  CHECK(name_if([](rank& r) { r.settings.dataset.path = "/tmp"; }) != name);
  CHECK(name_if([](rank& r) { r.settings.dataset.type = dataset_type::raw; }) != name);
  CHECK(name_if([](rank& r) { r.settings.storage.cache = "/tmp"; }) != name);
}

TEST_CASE("a path that leads to another folder, as in another container, is another listing") {
  const auto folder = std::filesystem::temp_directory_path() / ("penstock-listing-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  std::filesystem::create_directory_symlink("/", folder / "data");
  const auto at_link = [&] { return name_if([&](rank& r) { r.settings.dataset.path = folder / "data"; }); };
  const std::string before = at_link();
  CHECK(at_link() == before);
  std::filesystem::remove(folder / "data");
  std::filesystem::create_directory_symlink("/proc", folder / "data");
  CHECK(at_link() != before);
  std::filesystem::remove_all(folder);
}

TEST_CASE("a rank shares nothing if it is alone on its host, its job has no name, or nothing is listed") {
  CHECK(name_if([](rank& r) { r.place.local_world_size = 1; }).empty());
  CHECK(name_if([](rank& r) { r.place.job.clear(); }).empty());
  CHECK(name_if([](rank& r) { r.settings.dataset.type = dataset_type::synthetic; }).empty());
  CHECK(name_if([](rank& r) { r.settings.dataset.type = dataset_type::custom; }).empty());
}

TEST_CASE("the datasets of a mixture are shared together if one of them is listed") {
  const auto mixture = [](dataset_type second) {
    return name_if([&](rank& r) {
      r.settings.datasets.resize(2);
      for (auto& one : r.settings.datasets) one.dataset.type = dataset_type::synthetic;
      r.settings.datasets[1].dataset.type = second;
    });
  };
  CHECK_FALSE(mixture(dataset_type::npy).empty());
  CHECK(mixture(dataset_type::npy) != mixture(dataset_type::tokens));
  CHECK(mixture(dataset_type::synthetic).empty());
}
