#include "tools/penstock/pack/repack_state.hpp"

#include "runtime/base/replace_file.hpp"
#include "runtime/base/text.hpp"
#include "runtime/dataset/file_reader.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cerrno>

namespace penstock::pack {
namespace {

using json = nlohmann::ordered_json;
constexpr std::uint64_t repack_state_max = std::uint64_t{1} << 30U;
constexpr const char* repack_schema = "penstock.repacked/1";

std::string repack_state_file(const std::string& folder) {
  return folder + "/pack.json";
}

}  // namespace

result<std::optional<repack_state>> read_repack_state(const std::string& folder) {
  file_reader reader;
  const auto bytes = reader.read(repack_state_file(folder), repack_state_max);
  if (!bytes && bytes.error().os_code == ENOENT) return std::nullopt;
  if (!bytes) return refuse(errc::io, "'{}': {}", printable(repack_state_file(folder)), bytes.error().message);
  const auto* const text = reinterpret_cast<const char*>(bytes->data());
  try {
    const json j = json::parse(text, text + bytes->size());
    if (j.at("schema") != repack_schema)
      return refuse(errc::usage, "'{}' holds shards that were made from pictures: choose another --out", printable(folder));
    repack_state state;
    state.frame_size = j.at("frame_size");
    for (const json& one : j.at("shards"))
      state.sources[one.at("name")] = {one.at("source"), one.at("source_bytes"), one.at("source_modified_ns")};
    return state;
  } catch (const json::exception&) {
    return refuse(errc::usage, "'{}' cannot be read: remove it and the shards next to it, or choose another --out",
                  printable(repack_state_file(folder)));
  }
}

result<void> write_repack_state(const std::string& folder, const repack_state& state) {
  json j{{"schema", repack_schema}, {"frame_size", state.frame_size}, {"shards", json::array()}};
  for (const auto& [name, from] : state.sources)
    j["shards"].push_back({{"name", name}, {"source", from.name}, {"source_bytes", from.bytes}, {"source_modified_ns", from.modified_ns}});
  return replace_file(repack_state_file(folder), j.dump(2) + "\n");
}

}  // namespace penstock::pack
