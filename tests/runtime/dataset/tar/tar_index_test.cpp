#include "runtime/dataset/tar/tar_index.hpp"

#include "runtime/dataset/tar/index_cache.hpp"
#include "runtime/dataset/tar/shard_index.hpp"
#include "tests/runtime/dataset/fixtures.hpp"
#include "tests/runtime/dataset/tar/archives.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

using namespace penstock;
using testing::append_typed;
using testing::archive_of;
using testing::temporary_folder;

namespace {

found_index find(const std::string& path, const std::string& cache = {}) {
  const auto shards = list_shards(path);
  REQUIRE(shards);
  auto found = find_index(*shards, cache);
  if (!found) FAIL(found.error().message);
  return std::move(*found);
}

std::string refusal(const std::string& path) {
  const auto found = find_index(*list_shards(path), "");
  return found ? "" : found.error().message;
}

/// "shard key: extension contents, ..." for each sample.
std::vector<std::string> samples_of(const tar_index& index, const std::string& folder) {
  std::vector<std::string> all;
  indexed_sample sample;
  for (std::uint64_t i = 0; i < index.samples(); ++i) {
    REQUIRE(index.read(i, sample));
    CHECK(index.key(i) == sample.key);
    const std::string name(index.shard(sample.shard).name);
    std::string text = fmt::format("{} {}:", name, sample.key);
    std::ifstream shard(folder + "/" + name, std::ios::binary);
    for (const indexed_member& member : sample.members) {
      std::string contents(member.bytes, '\0');
      shard.seekg(static_cast<std::streamoff>(member.data_at()));
      shard.read(contents.data(), static_cast<std::streamsize>(contents.size()));
      text +=
          fmt::format(" {} {}{}", member.extension, contents, member.kind == indexed_kind::file ? "" : "!");
    }
    all.push_back(text);
  }
  return all;
}

/// "key: number ..." for each sample.
std::vector<std::string> numbers_in(const tar_index& index) {
  std::vector<std::string> all;
  REQUIRE(index.read_all([&](std::uint64_t, const indexed_sample& sample) {
    std::string text = fmt::format("{}:", sample.key);
    for (const indexed_member& member : sample.members)
      if (member.number) text += fmt::format(" {}", *member.number);
    all.push_back(text);
  }));
  return all;
}

tar_index index_of(const shard_index& shard) {
  const auto file = create_memory_file("index", "an index");
  REQUIRE(file);
  REQUIRE(write_tar_index(file->get(), std::span(&shard, 1)));
  auto index = tar_index::map(file->get());
  REQUIRE(index);
  return std::move(*index);
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

/// The superuser may write anywhere, so give up its rights for a while.
class as_ordinary_user {
 public:
  as_ordinary_user() {
    if (::geteuid() == 0) was_superuser_ = ::seteuid(65534) == 0;
  }
  ~as_ordinary_user() {
    if (was_superuser_ && ::seteuid(0) != 0) std::abort();
  }
  as_ordinary_user(const as_ordinary_user&) = delete;
  as_ordinary_user& operator=(const as_ordinary_user&) = delete;

 private:
  bool was_superuser_ = false;
};

void set_time(const std::string& path, std::int64_t seconds) {
  const ::timespec times[2] = {{seconds, 0}, {seconds, 0}};
  REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
}

}  // namespace

TEST_CASE("members are grouped by key, in the order of first members, shard by shard") {
  const temporary_folder folder;
  folder.write("a.tar",
               archive_of({{"d/2.jpg", "two"}, {"d/1.JPG", "one"}, {"d/1.cls", "1"}, {"d/2.cls", "2"}}));
  folder.write("b.tar",
               archive_of({{"d/1.cls", "9"}, {"readme", "no"}, {"d/1.seg.png", "mask"}, {"3.x", ""}}));
  const found_index found = find(folder.path());
  CHECK(samples_of(found.index, folder.path()) ==
        std::vector<std::string>{"a.tar d/2: jpg two cls 2", "a.tar d/1: jpg one cls 1",
                                 "b.tar d/1: cls 9 seg.png mask", "b.tar 3: x "});
  REQUIRE(found.index.extensions(1).size() == 3);
  CHECK(found.index.extensions(1)[1].text == "seg.png");
  CHECK(found.index.extensions(1)[1].longest == 4);
  CHECK(found.index.shard(1).first_sample == 2);
  CHECK(found.index.shard(1).members == 3);
}

TEST_CASE("links and sparse files are listed as such, and a duplicate is a second member") {
  const temporary_folder folder;
  std::string archive;
  append_typed(archive, '5', "d/");
  append_typed(archive, '2', "1.jpg");
  append_typed(archive, 'S', "1.png", "data");
  append_tar_member(archive, "1.cls", "7");
  append_tar_member(archive, "1.cls", "8");
  append_tar_end(archive);
  folder.write("a.tar", archive);
  CHECK(samples_of(find(folder.path()).index, folder.path()) ==
        std::vector<std::string>{"a.tar 1: jpg ! png data! cls 7 cls 8"});
}

TEST_CASE("absolute names, and names with .. in them, are keys and not paths") {
  const temporary_folder folder;
  folder.write("a.tar", archive_of({{"/etc/passwd.jpg", "x"}, {"../../up.jpg", "y"}}));
  CHECK(samples_of(find(folder.path()).index, folder.path()) ==
        std::vector<std::string>{"a.tar /etc/passwd: jpg x", "a.tar ../../up: jpg y"});
}

TEST_CASE("many samples with members in any order are grouped as by a plain map") {
  const int ascending = GENERATE(0, 1, 500, 2999, 3000);
  const temporary_folder folder;
  random_source random(1, 2, 3);
  testing::named_contents members;
  for (int i = 0; i < 3000; ++i)
    members.emplace_back(fmt::format("{:04}.{}", i < ascending ? i / 3 : random.below(700), "abc"[random.below(3)]),
                         std::string(random.below(1200), 'x'));
  folder.write("a.tar", archive_of(members));
  std::vector<std::string> keys;
  std::map<std::string, std::string> expected;
  for (const auto& [name, contents] : members) {
    const std::string key = name.substr(0, name.find('.'));
    if (!expected.contains(key)) keys.push_back(key);
    expected[key] += fmt::format(" {} {}", name.substr(key.size() + 1), contents);
  }
  std::vector<std::string> wanted;
  for (const std::string& key : keys) wanted.push_back(fmt::format("a.tar {}:{}", key, expected[key]));
  CHECK((samples_of(find(folder.path()).index, folder.path()) == wanted));
}

TEST_CASE("an index is built once and then read from next to the shards, with equal contents") {
  const temporary_folder folder;
  folder.write("a.tar", archive_of({{"1.jpg", "x"}}));
  const found_index first = find(folder.path());
  CHECK(first.built);
  CHECK(first.path.starts_with(folder.path()));
  const found_index second = find(folder.path());
  CHECK_FALSE(second.built);
  CHECK(second.notices.empty());
  CHECK(second.index.fingerprint() == first.index.fingerprint());
  CHECK(files_in(folder.path()).size() == 2);
}

TEST_CASE("an index of changed shards is rebuilt, and the reason is reported") {
  const temporary_folder folder;
  folder.write("a.tar", archive_of({{"1.jpg", "x"}}));
  folder.write("b.tar", archive_of({{"1.jpg", "x"}}));
  const std::string index = find(folder.path()).path;
  const auto told = [&](std::string_view part) {
    const found_index found = find(folder.path());
    CHECK(found.built);
    REQUIRE(found.notices.size() == 1);
    CHECK(found.notices[0].starts_with(fmt::format("the index '{}' ", index)));
    CHECK_FALSE(find(folder.path()).built);
    return found.notices[0].find(part) != std::string::npos;
  };
  set_time(folder.path("b.tar"), 1000);
  CHECK(told("describes 'b.tar' as it was before"));
  folder.write("b.tar", archive_of({{"1.jpg", "x"}, {"2.jpg", "x"}}));
  CHECK(told("is older than 'b.tar', which had 2048 bytes and has 3072 now"));
  std::filesystem::resize_file(index, std::filesystem::file_size(index) - 1);
  CHECK(told("the index of shards is damaged"));
  std::fstream(index, std::ios::in | std::ios::out).seekp(-1, std::ios::end).put('?');
  CHECK(told("is damaged: building it again"));
}

TEST_CASE("an index of an earlier version is built again, and its version is reported") {
  const temporary_folder folder;
  folder.write("a.tar", archive_of({{"1.cls", "7"}}));
  const std::string index = find(folder.path()).path;
  constexpr std::streamoff version_at = 8;
  std::fstream(index, std::ios::in | std::ios::out).seekp(version_at).put(3);
  const found_index found = find(folder.path());
  CHECK(found.built);
  REQUIRE(found.notices.size() == 1);
  CHECK(found.notices[0].find("has version 3, but this program reads version 4") != std::string::npos);
  CHECK(numbers_in(found.index) == std::vector<std::string>{"1: 7"});
}

TEST_CASE("the index contains the numbers read from members, wherever a read ends and whatever the order of keys") {
  const temporary_folder folder;
  const auto shard = [](bool ascends, std::size_t picture) {
    testing::named_contents members;
    for (int i = 0; i < 600; ++i) {
      const int key = ascends ? 1000 + i : (i * 7) % 600;
      members.emplace_back(fmt::format("{}.jpg", key), std::string(picture, 'x'));
      members.emplace_back(fmt::format("{}.cls", key), fmt::format("{}\n", key - 300));
    }
    members.emplace_back("0.Count", " +5");  // of a sample that began long before
    return members;
  };
  for (const std::size_t picture : {std::size_t{0}, std::size_t{700}, std::size_t{20'000}}) {
    for (const bool ascends : {true, false}) {
      CAPTURE(picture, ascends);
      const auto members = shard(ascends, picture);
      std::vector<std::string> expected;
      for (const auto& [name, contents] : members) {
        if (!name.ends_with(".cls")) continue;
        const std::string key = name.substr(0, name.find('.'));
        expected.push_back(fmt::format("{}: {}{}", key, std::stoi(contents), key == "0" ? " 5" : ""));
      }
      if (ascends) expected.emplace_back("0: 5");
      const std::string archive = archive_of(members);
      folder.write("a.tar", archive);
      folder.write("b.tar.zst", testing::seekable(archive, 3000));
      for (const std::string name : {"a.tar", "b.tar.zst"}) {
        for (const unsigned parts : {1U, 4U, 7U}) {
          CAPTURE(name, parts);
          std::atomic<std::uint64_t> progress = 0;
          const auto read = read_shard(folder.path(name), name, parts, progress);
          REQUIRE(read);
          CHECK(numbers_in(index_of(*read)) == expected);
        }
      }
    }
  }
}

TEST_CASE("the index has no number for a member that is not a number, not a plain file, or too long") {
  const temporary_folder folder;
  std::string archive;
  append_typed(archive, '2', "a.cls");
  append_tar_member(archive, "b.cls", "seven");
  append_tar_member(archive, "c.cls", "");
  append_tar_member(archive, "d.cls", std::string(64, ' ') + "7");
  append_tar_member(archive, "e.cls", "-9223372036854775808");
  append_tar_member(archive, "f.cls", "9223372036854775808");
  append_tar_member(archive, "g.cls", "9223372036854775807");
  append_tar_member(archive, "h.cls", "-9223372036854775807");
  append_tar_member(archive, "i.txt", "7");
  append_tar_member(archive, "j.id", std::string("7\0", 2));
  append_tar_end(archive);
  folder.write("a.tar", archive);
  CHECK(numbers_in(find(folder.path()).index) == std::vector<std::string>{"a:", "b:", "c:", "d:", "e:", "f:", "g: 9223372036854775807",
                                                                         "h: -9223372036854775807", "i:", "j: 7"});
}

TEST_CASE("shards in a read-only folder have their index in the cache, or else in memory") {
  const temporary_folder folder;
  folder.write("shards/a.tar", archive_of({{"1.jpg", "x"}}));
  folder.write("file", "");
  REQUIRE(::chmod(folder.path().c_str(), 0777) == 0);
  REQUIRE(::chmod(folder.path("shards").c_str(), 0555) == 0);
  const as_ordinary_user no_superuser;
  const found_index first = find(folder.path("shards"), folder.path("cache"));
  CHECK(first.path.starts_with(folder.path("cache/")));
  CHECK(first.notices.empty());
  CHECK_FALSE(find(folder.path("shards"), folder.path("cache")).built);
  const found_index none = find(folder.path("shards"), folder.path("file"));
  CHECK(none.path.empty());
  CHECK(none.index.samples() == 1);
  REQUIRE(none.notices.size() == 1);
  CHECK(none.notices[0].starts_with("the index of shards could not be saved ("));
}

TEST_CASE("an index that cannot replace the outdated one next to the shards is kept in the cache") {
  if (::geteuid() != 0) SKIP("needs an index of another user");
  const temporary_folder folder;
  folder.write("shards/a.tar", archive_of({{"1.jpg", "x"}}));
  CHECK(find(folder.path("shards")).built);
  set_time(folder.path("shards/a.tar"), 1000);
  REQUIRE(::chmod(folder.path().c_str(), 0777) == 0);
  REQUIRE(::chmod(folder.path("shards").c_str(), 01777) == 0);
  const as_ordinary_user no_superuser;
  const found_index first = find(folder.path("shards"), folder.path("cache"));
  CHECK(first.path.starts_with(folder.path("cache/")));
  CHECK(first.notices.size() == 1);
  const found_index second = find(folder.path("shards"), folder.path("cache"));
  CHECK_FALSE(second.built);
  CHECK(second.notices.empty());
  CHECK(files_in(folder.path("shards")).size() == 2);
}

TEST_CASE("files left by a killed builder are removed when the index is built") {
  const temporary_folder folder;
  folder.write("a.tar", archive_of({{"1.jpg", "x"}}));
  const std::string index = find(folder.path()).path;
  std::filesystem::rename(index, index + ".new-1-0");
  CHECK(find(folder.path()).built);
  CHECK(files_in(folder.path()).size() == 2);
}

TEST_CASE("damaged, compressed and empty shards are refused and named, and leave no index") {
  const temporary_folder folder;
  folder.write("a.tar", archive_of({{"1.jpg", "x"}}));
  folder.write("b.tar", archive_of({{"1.jpg", std::string(5000, 'x')}}).substr(0, 4000));
  folder.write("c.tar", "");
  CHECK(refusal(folder.path()) ==
        "the shard 'b.tar' is damaged at offset 0, member '1.jpg': it has 5000 bytes, but the archive ends "
        "after 3488 "
        "of them: it was cut short");
  CHECK(refusal(folder.path("c.tar")) == "the shard 'c.tar' is empty: not a tar archive");
  folder.write("c.tar", "\x1f\x8b" + std::string(1000, 'x'));
  CHECK(refusal(folder.path("c.tar")) ==
        "the shard 'c.tar' is compressed with gzip: only zstd is read; decompress it");
  folder.make_folder("d.tar");
  CHECK(refusal(folder.path("{a,e}.tar")) == "the shard 'e.tar' cannot be opened: No such file or directory");
  CHECK(files_in(folder.path()) == std::vector<std::string>{"a.tar", "b.tar", "c.tar", "d.tar"});
}

TEST_CASE("processes that need the same index at the same time get equal ones, and one file remains") {
  const temporary_folder folder;
  for (int shard = 0; shard < 8; ++shard) {
    testing::named_contents members;
    for (int i = 0; i < 200; ++i) members.emplace_back(fmt::format("{}.jpg", i), std::string(100, 'x'));
    folder.write(fmt::format("{}.tar", shard), archive_of(members));
  }
  std::vector<std::string> fingerprints(4);
  {
    std::vector<std::jthread> threads;
    for (std::string& fingerprint : fingerprints) {
      threads.emplace_back([&] {
        const auto found = find_index(*list_shards(folder.path()), "");
        fingerprint = found ? std::string(found->index.fingerprint()) : found.error().message;
      });
    }
  }
  CHECK(std::ranges::count(fingerprints, find(folder.path()).index.fingerprint()) == 4);
  CHECK(files_in(folder.path()).size() == 9);
}

TEST_CASE("an index takes less than 40 bytes a sample plus its keys, with four members each") {
  const temporary_folder folder;
  testing::named_contents members;
  std::uint64_t key_bytes = 0;
  constexpr std::uint64_t samples = 2000;
  for (std::uint64_t i = 0; i < samples; ++i) {
    const std::string key = fmt::format("{:06}", i);
    key_bytes += key.size();
    members.emplace_back(key + ".jpg", std::string(20'000, 'x'));
    members.emplace_back(key + ".cls", "7");
    members.emplace_back(key + ".txt", std::string(200, 'x'));
    members.emplace_back(key + ".json", std::string(900, 'x'));
  }
  folder.write("a.tar", archive_of(members));
  CHECK(find(folder.path()).index.file_bytes() - key_bytes <= 40 * samples);
}

TEST_CASE("an impossible record is refused, and no byte outside the index is read") {
  const temporary_folder folder;
  folder.write("a.tar", archive_of({{"1.jpg", "x"}, {"1.cls", "7"}, {"2.jpg", "x"}}));
  const std::string path = find(folder.path()).path;
  std::ifstream file(path, std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(file)), {});
  for (std::size_t at = good.size() - 30; at < good.size(); ++at) {
    for (const char wrong : {'\x00', '\x7f', '\xff'}) {
      std::string bad = good;
      bad[at] = wrong;
      folder.write("bad", bad);
      const unique_fd fd(::open(folder.path("bad").c_str(), O_RDONLY));
      const auto index = tar_index::map(fd.get());
      REQUIRE(index);
      CHECK(index->checksum_holds() == (bad == good));
      indexed_sample sample;
      for (std::uint64_t i = 0; i < index->samples(); ++i) (void)index->read(i, sample);
    }
  }
}

TEST_CASE("a shard read in parts has the same index as one read in order") {
  const temporary_folder folder;
  random_source random(4, 5, 6);
  int readable = 0;
  for (int round = 0; round < 60; ++round) {
    std::string archive;
    for (int i = 0; i < 100; ++i) {
      const bool ascends = round % 4 == 0 || random.below(2) == 0;
      const std::string name = fmt::format("{}.{}", ascends ? 1000 + i / 3 : random.below(80), "abC"[round % 8 == 0 ? i % 3 : random.below(3)]);
      // A member that is itself an archive contains what look like headers of this one.
      const std::string contents = random.below(4) == 0 ? archive_of({{"in.side", "x"}, {"b.abc", std::string(600, 'y')}})
                                                        : std::string(random.below(round % 3 == 0 ? 30'000 : 900), 'x');
      const std::string long_name = std::string(120, 'n') + name;
      switch (random.below(round % 2 == 0 ? 40 : 5)) {
        case 0: append_typed(archive, 'x', "pax", testing::pax_record("path", long_name)); break;
        case 1: append_typed(archive, 'L', "long", long_name); break;
        case 2:
          if (round % 5 == 0) append_typed(archive, 'g', "global", testing::pax_record("path", "every.one"));
          break;
        default: break;
      }
      const bool is_link = random.below(10) == 0;
      append_typed(archive, is_link ? '2' : '0', name, is_link ? std::string() : contents);
    }
    append_tar_end(archive);
    if (round % 7 == 0) archive += std::string(512, 'z') + archive_of({{"be.hind", "x"}});
    if (round % 11 == 0) archive[random.below(archive.size() / 512) * 512 + 3] ^= 1;  // makes the checksum wrong, if the block is a header
    folder.write("a.tar", archive);
    folder.write("a.tar.zst", testing::seekable(archive, 100 + random.below(3000)));
    std::atomic<std::uint64_t> passed{0};
    const auto in_order = read_shard(folder.path("a.tar"), "a", 1, passed);
    readable += in_order ? 1 : 0;
    for (unsigned parts = 1; parts <= 9; ++parts) {
      const auto in_parts = read_shard(folder.path(parts % 2 == 0 ? "a.tar" : "a.tar.zst"), "a", parts, passed);
      REQUIRE(in_parts.has_value() == in_order.has_value());
      if (!in_order) {
        REQUIRE(in_parts.error().message == in_order.error().message);
        continue;
      }
      REQUIRE((in_parts->records == in_order->records && in_parts->offsets == in_order->offsets));
      REQUIRE(in_parts->members == in_order->members);
      REQUIRE(in_parts->has_end_marker == in_order->has_end_marker);
      REQUIRE(in_parts->bytes_after_end == in_order->bytes_after_end);
      REQUIRE(in_parts->extensions.size() == in_order->extensions.size());
      for (std::size_t i = 0; i < in_order->extensions.size(); ++i) {
        REQUIRE(in_parts->extensions[i].text == in_order->extensions[i].text);
        REQUIRE(in_parts->extensions[i].members == in_order->extensions[i].members);
        REQUIRE(in_parts->extensions[i].longest == in_order->extensions[i].longest);
      }
    }
  }
  CHECK(readable > 40);
}
