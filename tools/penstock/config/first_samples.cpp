#include "tools/penstock/config/first_samples.hpp"

#include "runtime/base/fd.hpp"
#include "runtime/base/read_at.hpp"
#include "runtime/base/remote_path.hpp"
#include "runtime/dataset/listing/names.hpp"
#include "runtime/dataset/tar/frame_reader.hpp"
#include "runtime/dataset/tar/member_name.hpp"
#include "runtime/dataset/tar/shard_list.hpp"
#include "runtime/dataset/tar/tar_parser.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

namespace penstock::cli {
namespace {

constexpr std::size_t headers_max = 64;
constexpr std::size_t samples_max = 3;

/// Adds a member. Returns false when enough is known.
bool add_member(first_samples& to, const tar_member& member) {
  const member_name name = split_member_name(member.name);
  if (member.kind != tar_kind::file || name.key.empty()) return true;
  auto known = std::ranges::find(to.extensions, name.key, [](const auto& one) { return std::string_view(one.first); });
  if (known == to.extensions.end()) {
    if (to.extensions.size() == samples_max) return false;
    known = to.extensions.insert(known, {std::string(name.key), {}});
  }
  known->second.push_back(lower_case(name.extension));
  return true;
}

/// The only shard that is opened; empty if no shard can be.
std::optional<std::pair<std::string, std::string>> first_shard(const std::string& path) {
  // A list may name objects, and listing those means asking a server.
  if (is_url(path) || ends_with_any_case(path, ".txt")) return std::nullopt;
  const auto list = list_shards(path);
  if (!list || is_zstd_name(list->names.front())) return std::nullopt;
  return std::pair(list->names.front(), list->path(0));
}

}  // namespace

std::optional<first_samples> look_at_first_samples(const std::string& path) {
  const auto shard = first_shard(path);
  if (!shard) return std::nullopt;
  const unique_fd file(::open(shard->second.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat facts {};
  if (!file || ::fstat(file.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) return std::nullopt;
  first_samples found{shard->first, {}};
  tar_parser parser(static_cast<std::uint64_t>(facts.st_size));
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < headers_max; ++i) {
    const auto wanted = parser.wanted();
    if (!wanted) break;
    bytes.resize(wanted->bytes);
    if (const read_part got = read_at(file.get(), wanted->at, bytes); got.error != 0 || got.bytes != bytes.size()) return std::nullopt;
    const auto member = parser.take(bytes);
    if (!member) return std::nullopt;
    if (*member && !add_member(found, **member)) break;
  }
  if (found.extensions.empty()) return std::nullopt;
  return found;
}

}  // namespace penstock::cli
