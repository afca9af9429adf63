// How worker places are numbered: first the local loaders, then the sacrificial worker, then workers on other
// machines. Used by everything that has one entry for each place: arena, flight recorders, leases, the owner's
// partitions.
#pragma once

#include <penstock/config.hpp>

#include <cstdint>

namespace penstock {

/// The most workers on other machines.
inline constexpr std::uint32_t remote_workers_max = 256;

/// Whether workers on other machines may join.
[[nodiscard]] inline bool has_hosts(const loader_config& loader) noexcept {
  return !loader.hosts.listen.empty() || !loader.hosts.connect.empty();
}
[[nodiscard]] inline std::uint32_t sacrificial_place_of(const loader_config& loader) noexcept {
  return loader.limits.max;
}
[[nodiscard]] inline std::uint32_t first_remote_place_of(const loader_config& loader) noexcept {
  return sacrificial_place_of(loader) + 1;
}
[[nodiscard]] inline std::uint32_t places_of(const loader_config& loader) noexcept {
  return first_remote_place_of(loader) + (has_hosts(loader) ? remote_workers_max : 0);
}

}  // namespace penstock
