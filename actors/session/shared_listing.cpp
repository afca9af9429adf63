#include "actors/session/shared_listing.hpp"

#include "actors/protocol/config_bytes.hpp"
#include "runtime/dataset/fingerprint.hpp"
#include "runtime/process/shared_files.hpp"

#include <fmt/format.h>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

namespace penstock::session {
namespace {

std::vector<dataset_config> datasets_of(const config& settings) {
  if (settings.datasets.empty()) return {settings.dataset};
  std::vector<dataset_config> all;
  for (const mixed_dataset_config& one : settings.datasets) all.push_back(one.dataset);
  return all;
}

bool is_listed(const dataset_config& dataset) {
  return dataset.type != dataset_type::synthetic && dataset.type != dataset_type::custom;
}

}  // namespace

std::string shared_listing_name(const config& settings, const group::group_setup& group, const launcher_place& place) {
  const std::vector<dataset_config> datasets = datasets_of(settings);
  const bool alone = place.local_world_size.value_or(place.world_size) < 2;
  if (alone || place.job.empty() || datasets.size() > process::shared_files_max || std::ranges::none_of(datasets, is_listed)) return {};
  config listed;
  listed.dataset = settings.dataset;
  listed.datasets = settings.datasets;
  listed.storage = settings.storage;
  fingerprint_hash hash("shared listing");
  hash.add_text(PENSTOCK_VERSION);
  hash.add_text(group.links.group);
  hash.add_text(group::text_of(group.links.address));
  hash.add_text(protocol::config_as_bytes(listed));
  for (const dataset_config& dataset : datasets) {
    struct ::stat facts {};  // containers may have different folders at one path
    if (::stat(dataset.path.c_str(), &facts) != 0) facts = {};
    hash.add_number(facts.st_dev);
    hash.add_number(facts.st_ino);
  }
  return fmt::format("penstock/{}/listing/{}", ::getuid(), hash.hex());
}

}  // namespace penstock::session
