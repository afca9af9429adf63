#include "tools/penstock/pack/repack.hpp"

#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/dataset/file_reader.hpp"
#include "runtime/dataset/in_parallel.hpp"
#include "runtime/dataset/listing/names.hpp"
#include "runtime/dataset/tar/frame_reader.hpp"
#include "runtime/dataset/tar/member_name.hpp"
#include "runtime/dataset/tar/tar_parser.hpp"
#include "tools/penstock/pack/repack_state.hpp"
#include "tools/penstock/pack/shard_file.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <unordered_set>

namespace penstock::pack {
namespace {

/// Longer samples are added in pieces.
constexpr std::uint64_t piece_max = 16 * MiB;

bool is_shard_name(std::string_view name) noexcept {
  return ends_with_any_case(name, ".tar") || is_zstd_name(name);
}

std::string_view without_folders(std::string_view name) noexcept {
  return name.substr(name.rfind('/') + 1);
}

/// The shard's file name in the output folder.
std::string name_in_results(std::string_view name, bool compressed) {
  return std::string(stem_of_shard(without_folders(name))) + (compressed ? ".tar.zst" : ".tar");
}

/// For failures to read; failures to write already name their file.
tl::unexpected<failure> about_source(const std::string& path, failure why) {
  why.message = fmt::format("packing '{}': it {}", printable(path), why.message);
  return tl::unexpected(std::move(why));
}

/// Copies an archive, sample by sample.
class archive_copy {
 public:
  archive_copy(readable& from, std::string path, shard_file& to, std::atomic<std::uint64_t>& passed)
      : from_(from), path_(std::move(path)), to_(to), passed_(passed) {}

  result<void> run() {
    tar_parser parser(from_.bytes());
    std::string key;
    std::vector<std::byte> block;
    while (const auto wanted = parser.wanted()) {
      block.resize(wanted->bytes);
      if (auto ok = from_.read(wanted->at, block); !ok) return about_source(path_, std::move(ok.error()));
      const auto member = parser.take(block);
      if (!member) return about_source(path_, member.error());
      if (!*member) continue;
      const std::string_view its_key = split_member_name((*member)->name).key;
      // Blocks before the header (long names, records) belong to its member, so the copy ends after the previous member.
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
      if (auto ok = from_.read(copied_, std::as_writable_bytes(std::span(piece))); !ok)
        return about_source(path_, std::move(ok.error()));
      if (auto ok = to_.add(piece); !ok) return ok;
      copied_ += piece.size();
      passed_ += piece.size();
    }
    return {};
  }

  readable& from_;
  std::string path_;
  shard_file& to_;
  std::atomic<std::uint64_t>& passed_;
  std::uint64_t copied_ = 0;
  std::uint64_t members_end_ = 0;
};

result<void> copy_shard(const shard_list& shards, std::size_t i, shard_file& to, std::atomic<std::uint64_t>& passed) {
  auto file = shards.open(i);
  const std::string path = shards.path(i);
  if (!file) return about_source(path, std::move(file.error()));
  if (!is_zstd_name(shards.names[i])) return archive_copy(**file, path, to, passed).run();
  const auto frames = read_frames(**file);
  if (!frames) return about_source(path, frames.error());
  zstd_archive archive(std::move(*file), *frames);
  return archive_copy(archive, path, to, passed).run();
}

result<shard_source> source_of(const shard_list& shards, std::size_t i) {
  struct ::stat facts {};
  if (::stat(shards.path(i).c_str(), &facts) != 0) return refuse_os(errc::io, errno, fmt::format("examining '{}'", printable(shards.path(i))));
  return shard_source{printable(without_folders(shards.names[i])), static_cast<std::uint64_t>(facts.st_size), modified_ns_of(facts)};
}

/// Finds the shards from an earlier run. Before writing the first shard, records the source of each.
result<void> begin_or_continue(const shard_list& shards, const std::string& out, std::uint64_t frame_size, std::vector<repacked_shard>& made) {
  constexpr std::string_view way_out = "choose another --out, or remove the shards and pack.json to begin again";
  auto found = read_repack_state(out);
  if (!found) return tl::unexpected(std::move(found.error()));
  if (*found && (**found).frame_size != frame_size)
    return refuse(errc::usage, "'{}' holds shards made with a different --compress or --frame-size: {}", printable(out), way_out);
  repack_state state = *found ? **found : repack_state{frame_size, {}};
  for (std::size_t i = 0; i < made.size(); ++i) {
    auto source = source_of(shards, i);
    if (!source) return tl::unexpected(std::move(source.error()));
    const std::string name = printable(made[i].name);
    struct ::stat facts {};
    if (::stat((out + "/" + made[i].name).c_str(), &facts) == 0) {
      const auto known = state.sources.find(name);
      if (known == state.sources.end())
        return refuse(errc::usage, "'{}' holds '{}', which was not written by penstock pack: choose another --out", printable(out), name);
      if (known->second != *source)
        return refuse(errc::usage, "'{}' holds '{}', which was made from a '{}' of {} bytes; the one in '{}' has {} bytes{}: {}", printable(out),
                      name, known->second.name, known->second.bytes, printable(shards.folder), source->bytes,
                      known->second.bytes == source->bytes ? " and a different modification time" : "", way_out);
      made[i].was_there = true;
      made[i].bytes = static_cast<std::uint64_t>(facts.st_size);
    }
    state.sources[name] = std::move(*source);
  }
  if (*found && **found == state) return {};
  return write_repack_state(out, state);
}

/// Refuses an output folder that contains source shards, because it would then have each sample twice.
result<void> check_is_another_folder(const shard_list& shards, const std::string& out) {
  for (std::size_t i = 0; i < shards.names.size(); ++i) {
    std::error_code fault;
    const std::string from = std::filesystem::path(shards.path(i)).parent_path().string();
    if (std::filesystem::equivalent(from.empty() ? "." : from, out, fault))
      return refuse(errc::usage, "--out '{}' is the folder of '{}', and would then contain its samples twice: choose another --out",
                                 printable(out),
                    printable(shards.path(i)));
  }
  return {};
}

}  // namespace

bool names_shards(const std::string& path, const std::string& out) {
  struct ::stat facts {};
  if (::stat(path.c_str(), &facts) != 0 || !S_ISDIR(facts.st_mode))
    return is_shard_name(path);
  bool has_shards = false;
  std::error_code fault;
  for (std::filesystem::directory_iterator at(path, fault), end; !fault && at != end; at.increment(fault)) {
    std::error_code unknown;
    const std::string& name = at->path().native();
    // An earlier run may have created `out` inside the folder of shards.
    if (at->is_directory(unknown) && !std::filesystem::equivalent(at->path(), out, unknown)) return false;
    if (is_picture_name(name)) return false;
    has_shards = has_shards || (is_shard_name(name) && at->is_regular_file(unknown));
  }
  return has_shards;
}

result<std::vector<repacked_shard>> repack(const shard_list& shards, const std::string& out, std::uint64_t frame_size, unsigned threads,
                                           std::atomic<std::uint64_t>& passed) {
  std::vector<repacked_shard> made(shards.names.size());
  std::unordered_set<std::string> names;
  for (std::size_t i = 0; i < made.size(); ++i) {
    made[i].name = name_in_results(shards.names[i], frame_size > 0);
    if (!names.insert(made[i].name).second)
      return refuse(errc::usage, "two of the shards would be called '{}' in '{}': pack them into separate folders",
                                 printable(made[i].name), printable(out));
  }
  if (auto ok = check_is_another_folder(shards, out); !ok) return tl::unexpected(std::move(ok.error()));
  if (auto ok = begin_or_continue(shards, out, frame_size, made); !ok) return tl::unexpected(std::move(ok.error()));
  auto done = in_parallel(made.size(), threads, [&](std::size_t i) -> result<void> {
    if (made[i].was_there) return {};
    auto file = shard_file::create(out + "/" + made[i].name, frame_size);
    if (!file) return tl::unexpected(std::move(file.error()));
    if (auto ok = copy_shard(shards, i, *file, passed); !ok) return ok;
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
