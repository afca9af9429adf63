// Indexes of shards: any bytes are refused, or read without leaving the mapping, and every member that is returned
// lies within its shard.
#include "runtime/dataset/tar/tar_index.hpp"
#include "tests/fuzz/fuzz_target.hpp"

#include <unistd.h>

#include <algorithm>

using namespace penstock;

namespace {

void read_all(int fd) {
  const auto index = tar_index::map(fd);
  if (!index) return;
  static_cast<void>(index->checksum_holds());
  for (std::uint64_t i = 0; i < index->shards(); ++i) {
    must(index->shard(i).name.size() <= index->file_bytes());
    for (const indexed_extension& extension : index->extensions(i))
      must(extension.text.size() <= index->file_bytes());
    const auto frames = index->frames(i);
    must(frames.empty() || frames_fit(frames, index->shard(i).file_bytes, index->shard(i).bytes));
  }
  indexed_sample sample;
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(index->samples(), 1000); ++i) {
    must(index->key(i).size() <= index->file_bytes());
    if (!index->read(i, sample)) continue;
    must(sample.shard < index->shards());
    const std::uint64_t shard_bytes = index->shard(sample.shard).bytes;
    for (const indexed_member& member : sample.members)
      must(member.data_at() <= shard_bytes && member.bytes <= shard_bytes - member.data_at());
  }
  std::uint64_t next = 0;
  if (index->samples() <= 1000) static_cast<void>(index->read_all([&](std::uint64_t i, const indexed_sample&) { must(i == next++); }));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto file = create_memory_file("fuzz", "an index");
  must(file.has_value() && ::write(file->get(), data, size) == static_cast<ssize_t>(size));
  read_all(file->get());
  // The code reads what follows the header only if the size fits.
  const std::uint64_t bytes = size;
  constexpr std::size_t total_bytes_at = 24;
  if (size >= total_bytes_at + sizeof bytes) {
    must(::pwrite(file->get(), &bytes, sizeof bytes, total_bytes_at) == sizeof bytes);
    read_all(file->get());
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  const auto shard = [](const std::string& name, std::initializer_list<std::string_view> members) {
    shard_grouping grouping;
    std::uint64_t at = 0;
    for (const std::string_view member : members) {
      const bool is_number = grouping.add({member, tar_kind::file, at, at + tar_block, member.ends_with(".cls") ? 2U : 700U});
      if (is_number) grouping.number_is("7");
      at += 3 * tar_block;
    }
    shard_index made;
    made.name = name;
    made.bytes = at;
    made.file_bytes = at;
    must(grouping.finish(made).has_value());
    return made;
  };
  std::vector<shard_index> shards{shard("a.tar", {"1.jpg", "1.cls", "2.jpg", "2.cls"}), shard("b.tar.zst", {"d/1.seg.png"})};
  shards[1].frames = {{0, 0, 100, 512, 0, 0}, {100, 512, 100, 1024, 7, 1}};
  std::vector<std::string> seeds;
  for (std::size_t count = 0; count <= shards.size(); ++count) {
    auto file = create_memory_file("seed", "an index");
    must(file.has_value() && write_tar_index(file->get(), std::span(shards).first(count)).has_value());
    std::string bytes(static_cast<std::size_t>(::lseek(file->get(), 0, SEEK_END)), '\0');
    must(::pread(file->get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
    seeds.push_back(std::move(bytes));
  }
  return seeds;
}
