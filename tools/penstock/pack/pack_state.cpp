#include "tools/penstock/pack/pack_state.hpp"

#include "runtime/base/replace_file.hpp"
#include "runtime/base/text.hpp"
#include "runtime/dataset/file_reader.hpp"
#include "runtime/dataset/tar/frame_reader.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

namespace penstock::pack {
namespace {

using json = nlohmann::ordered_json;
constexpr std::uint64_t state_bytes_max = std::uint64_t{1} << 30U;

std::string state_file(const std::string& folder) {
  return folder + "/pack.json";
}

pack_state parse(const json& j) {
  pack_state state;
  state.settings = {j.at("fingerprint"), j.at("shard_size"), j.at("resize"), j.at("quality"),
                    j.value("restart_markers", false), j.value("frame_size", std::uint64_t{0})};
  state.folder = j.at("folder");
  state.samples_all = j.at("samples");
  state.next_sample = j.at("next_sample");
  for (const json& shard : j.at("shards"))
    state.shards.push_back({shard.at("name"), shard.at("samples"), shard.at("bytes")});
  if (state.settings.restart_markers) {
    const json& counts = j.at("transcoded");
    state.markers = {counts.at("unchanged"), counts.at("were_progressive"), counts.at("bytes_before"),
                     counts.at("bytes_after")};
  }
  for (const json& one : j.at("failed"))
    state.failed.push_back({one.at("sample"), one.at("path"), one.at("reason")});
  return state;
}

bool holds_shards(const std::string& folder) {
  std::error_code fault;
  for (std::filesystem::directory_iterator at(folder, fault), end; !fault && at != end; at.increment(fault))
    if (at->path().extension() == ".tar" || is_zstd_name(at->path().native())) return true;
  return false;
}

}  // namespace

void marker_counts::add(const marker_counts& other) noexcept {
  unchanged += other.unchanged;
  were_progressive += other.were_progressive;
  bytes_before += other.bytes_before;
  bytes_after += other.bytes_after;
}

std::string shard_name(std::size_t number, const pack_settings& settings) {
  return fmt::format("shard-{:06}.tar{}", number, settings.frame_size > 0 ? ".zst" : "");
}

json as_json(const pack_state& state) {
  json j{{"schema", "penstock.pack/1"},
         {"folder", printable(state.folder)},
         {"fingerprint", state.settings.fingerprint},
         {"shard_size", state.settings.shard_size},
         {"resize", state.settings.resize},
         {"quality", state.settings.quality},
         {"restart_markers", state.settings.restart_markers},
         {"compress", state.settings.frame_size > 0 ? "zstd" : "none"},
         {"frame_size", state.settings.frame_size},
         {"complete", state.complete()},
         {"samples", state.samples_all},
         {"next_sample", state.next_sample},
         {"shards", json::array()},
         {"failed", json::array()}};
  if (state.settings.restart_markers) {
    j["transcoded"] = {{"unchanged", state.markers.unchanged},
                       {"were_progressive", state.markers.were_progressive},
                       {"bytes_before", state.markers.bytes_before},
                       {"bytes_after", state.markers.bytes_after}};
  }
  for (const packed_shard& shard : state.shards)
    j["shards"].push_back({{"name", shard.name}, {"samples", shard.samples}, {"bytes", shard.bytes}});
  for (const unpacked_sample& one : state.failed)
    j["failed"].push_back(
        {{"sample", one.sample}, {"path", printable(one.path)}, {"reason", printable(one.reason)}});
  return j;
}

result<std::optional<pack_state>> read_state(const std::string& folder, const pack_settings& settings) {
  file_reader reader;
  const auto bytes = reader.read(state_file(folder), state_bytes_max);
  if (!bytes && bytes.error().os_code == ENOENT) {
    if (!holds_shards(folder)) return std::nullopt;
    return refuse(errc::usage,
                  "'{}' holds shards that were not written by penstock pack: choose another --out",
                  printable(folder));
  }
  if (!bytes) {
    return refuse(errc::io, "'{}': {}", printable(state_file(folder)), bytes.error().message);
  }
  pack_state state;
  try {
    state = parse(json::parse(reinterpret_cast<const char*>(bytes->data()),
                              reinterpret_cast<const char*>(bytes->data()) + bytes->size()));
  } catch (const json::exception&) {
    return refuse(errc::usage,
                  "'{}' cannot be read: remove it and the shards next to it, or choose another --out",
                  printable(state_file(folder)));
  }
  if (state.settings != settings) {
    return refuse(
        errc::usage,
        "'{}' holds shards made from {}: choose another --out, or remove the shards to begin again",
        printable(folder),
        state.settings.fingerprint != settings.fingerprint
            ? "other pictures"
            : "the same pictures with a different --shard-size, --resize, --quality, --restart-markers, --compress or --frame-size");
  }
  for (const packed_shard& shard : state.shards) {
    struct ::stat facts {};
    if (::stat((folder + "/" + shard.name).c_str(), &facts) != 0 ||
        static_cast<std::uint64_t>(facts.st_size) != shard.bytes) {
      return refuse(
          errc::usage,
          "the shard '{}' in '{}' is missing or was changed: remove the shards and pack.json to begin again",
          printable(shard.name), printable(folder));
    }
  }
  return state;
}

result<void> write_state(const std::string& folder, const pack_state& state) {
  return replace_file(state_file(folder), as_json(state).dump(2) + "\n");
}

}  // namespace penstock::pack
