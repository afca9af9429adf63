#include "tools/penstock/pack/repack.hpp"

#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/dataset/in_parallel.hpp"
#include "runtime/dataset/listing/names.hpp"
#include "runtime/dataset/tar/frame_reader.hpp"
#include "runtime/dataset/tar/member_name.hpp"
#include "runtime/dataset/tar/tar_parser.hpp"
#include "tools/penstock/pack/shard_file.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <unordered_set>

namespace penstock::pack {
namespace {

/// A sample's members that are longer together are added in pieces.
constexpr std::uint64_t piece_max = 16 * MiB;

bool is_shard_name(std::string_view name) noexcept {
  return ends_with_any_case(name, ".tar") || is_zstd_name(name);
}

/// The name of a shard in the folder of results: without folders, .tar or .tar.zst.
std::string name_in_results(std::string_view name, bool compressed) {
  std::string base(name.substr(name.rfind('/') + 1));
  if (is_zstd_name(base)) base.resize(base.rfind('.'));  // .tar.zst -> .tar, .tzst -> nothing
  if (!ends_with_any_case(base, ".tar")) base += ".tar";
  return compressed ? base + ".zst" : base;
}

/// Copies an archive, sample by sample.
class archive_copy {
 public:
  archive_copy(readable& from, shard_file& to, std::atomic<std::uint64_t>& passed) : from_(from), to_(to), passed_(passed) {}

  result<void> run() {
    tar_parser parser(from_.bytes());
    std::string key;
    std::vector<std::byte> block;
    while (const auto wanted = parser.wanted()) {
      block.resize(wanted->bytes);
      if (auto ok = from_.read(wanted->at, block); !ok) return ok;
      const auto member = parser.take(block);
      if (!member) return tl::unexpected(member.error());
      if (!*member) continue;
      const std::string_view its_key = split_member_name((*member)->name).key;
      // Long names and records before the header belong to the member.
      if (its_key != key || its_key.empty()) {
        if (auto ok = copy_until(members_end_); !ok) return ok;
        key = its_key;
      }
      members_end_ = (*member)->data_at + round_up((*member)->size, tar_block);
      members_end_ = std::min(members_end_, from_.bytes());
    }
    if (auto ok = copy_until(members_end_); !ok) return ok;
    return copy_until(from_.bytes());
  }

 private:
  result<void> copy_until(std::uint64_t end) {
    std::string piece;
    while (copied_ < end) {
      piece.resize(std::min(piece_max, end - copied_));
      if (auto ok = from_.read(copied_, std::as_writable_bytes(std::span(piece))); !ok) return ok;
      if (auto ok = to_.add(piece); !ok) return ok;
      copied_ += piece.size();
      passed_ += piece.size();
    }
    return {};
  }

  readable& from_;
  shard_file& to_;
  std::atomic<std::uint64_t>& passed_;
  std::uint64_t copied_ = 0;
  std::uint64_t members_end_ = 0;
};

result<void> copy_shard(const shard_list& shards, std::size_t i, shard_file& to, std::atomic<std::uint64_t>& passed) {
  auto file = shards.open(i);
  if (!file) return tl::unexpected(std::move(file.error()));
  if (!is_zstd_name(shards.names[i])) return archive_copy(**file, to, passed).run();
  const auto frames = read_frames(**file);
  if (!frames) return tl::unexpected(frames.error());
  zstd_archive archive(std::move(*file), *frames);
  return archive_copy(archive, to, passed).run();
}

}  // namespace

bool names_shards(const std::string& path) {
  struct ::stat facts {};
  if (::stat(path.c_str(), &facts) != 0 || !S_ISDIR(facts.st_mode))
    return is_shard_name(path);
  std::error_code fault;
  for (std::filesystem::directory_iterator at(path, fault), end; !fault && at != end; at.increment(fault))
    if (is_shard_name(at->path().native())) return true;
  return false;
}

result<std::vector<repacked_shard>> repack(const shard_list& shards, const std::string& out, std::uint64_t frame_size, unsigned threads,
                                           std::atomic<std::uint64_t>& passed) {
  std::vector<repacked_shard> made(shards.names.size());
  std::unordered_set<std::string> names;
  for (std::size_t i = 0; i < made.size(); ++i) {
    made[i].name = name_in_results(shards.names[i], frame_size > 0);
    if (!names.insert(made[i].name).second)
      return refuse(errc::usage, "two of the shards would be called '{}' in '{}': pack them into folders of their own", printable(made[i].name), printable(out));
  }
  auto done = in_parallel(made.size(), threads, [&](std::size_t i) -> result<void> {
    const std::string path = out + "/" + made[i].name;
    struct ::stat facts {};
    if (::stat(path.c_str(), &facts) == 0) {
      made[i].was_there = true;
      made[i].bytes = static_cast<std::uint64_t>(facts.st_size);
      return {};
    }
    auto file = shard_file::create(path, frame_size);
    if (!file) return tl::unexpected(std::move(file.error()));
    if (auto ok = copy_shard(shards, i, *file, passed); !ok) {
      ok.error().message = fmt::format("packing '{}': it {}", printable(shards.path(i)), ok.error().message);
      return ok;
    }
    auto bytes = file->finish();
    if (!bytes) return tl::unexpected(std::move(bytes.error()));
    made[i].archive_bytes = file->archive_bytes();
    made[i].bytes = *bytes;
    return {};
  });
  if (!done) return tl::unexpected(std::move(done.error()));
  return made;
}

}  // namespace penstock::pack
