#include "runtime/storage/block_cache.hpp"
#include "runtime/storage/cache_room.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

using namespace penstock;

namespace {

class folder {
 public:
  folder() {
    std::string name = std::filesystem::temp_directory_path() / "penstock-cache-XXXXXX";
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name + "/cache";
    top_ = name;
  }
  ~folder() { std::filesystem::remove_all(top_); }
  folder(const folder&) = delete;
  folder& operator=(const folder&) = delete;

  std::string path;

 private:
  std::string top_;
};

using bytes = std::vector<std::byte>;

bytes contents(std::size_t size, unsigned seed = 1) {
  bytes made(size);
  for (std::size_t i = 0; i < size; ++i) made[i] = static_cast<std::byte>((i * 131 + i / 251 + seed) & 0xffU);
  return made;
}

/// May be called on any thread, while Catch2's macros work only on the main thread.
std::shared_ptr<block_cache> opened(const folder& in, std::uint64_t limit = 1U << 30U) {
  return block_cache::open(in.path, limit).value();
}

std::string file_of(const folder& in, std::string_view ending) {
  for (const auto& one : std::filesystem::directory_iterator(in.path))
    if (one.path().string().ends_with(ending)) return one.path();
  return {};
}

}  // namespace

TEST_CASE("the cache returns the bytes that it kept, and no others") {
  const folder here;
  const auto cache = opened(here);
  const bytes whole = contents(5 * cache_block + 100);
  const auto object = cache->object("s3://b/x \"v1\"", whole.size());
  REQUIRE(object);
  bytes part(10);
  CHECK_FALSE(object->read(0, part));
  object->keep(cache_block, std::span(whole).subspan(cache_block, 2 * cache_block));
  CHECK(object->has(cache_block, 2 * cache_block));
  CHECK_FALSE(object->has(cache_block, 2 * cache_block + 1));
  CHECK_FALSE(object->has(cache_block - 1, 2));
  REQUIRE(object->read(2 * cache_block - 5, part));
  CHECK(std::equal(part.begin(), part.end(), whole.begin() + 2 * cache_block - 5));
  // Partial blocks are not kept, except the last one of the object.
  object->keep(4 * cache_block + 1, std::span(whole).subspan(4 * cache_block + 1));
  CHECK_FALSE(object->has(4 * cache_block + 1, 1));
  CHECK(object->has(5 * cache_block, 100));
  bytes tail(100);
  REQUIRE(object->read(5 * cache_block, tail));
  CHECK(std::equal(tail.begin(), tail.end(), whole.begin() + 5 * cache_block));
}

TEST_CASE("a cache folder is private, and a new process finds its contents") {
  const folder here;
  const bytes whole = contents(3 * cache_block);
  opened(here)->object("x", whole.size())->keep(0, whole);
  struct ::stat facts {};
  REQUIRE(::stat(here.path.c_str(), &facts) == 0);
  CHECK((facts.st_mode & 0777U) == 0700);
  REQUIRE(::stat(file_of(here, ".data").c_str(), &facts) == 0);
  CHECK((facts.st_mode & 0777U) == 0600);
  bytes again(whole.size());
  REQUIRE(opened(here)->object("x", whole.size())->read(0, again));
  CHECK(again == whole);
  // Another version of the object has nothing in the cache, and neither has another size.
  CHECK_FALSE(opened(here)->object("y", whole.size())->has(0, 1));
  CHECK_FALSE(opened(here)->object("x", whole.size() - 1)->has(0, 1));
}

TEST_CASE("damaged, truncated and unwritten bytes are not returned") {
  const folder here;
  const auto cache = opened(here);
  const bytes whole = contents(2 * cache_block);
  const auto object = cache->object("x", whole.size());
  object->keep(0, whole);
  const std::string data = file_of(here, ".data");
  bytes part(100);
  SECTION("a byte changed") {
    const int fd = ::open(data.c_str(), O_WRONLY);
    REQUIRE(::pwrite(fd, "!", 1, 50) == 1);
    ::close(fd);
    CHECK_FALSE(object->read(0, part));
    CHECK(object->read(cache_block, part));
  }
  SECTION("emptied") {
    REQUIRE(::truncate(data.c_str(), 0) == 0);
    CHECK_FALSE(object->read(0, part));
    REQUIRE(::truncate(data.c_str(), static_cast<off_t>(whole.size())) == 0);
    CHECK_FALSE(object->read(0, part));
    object->keep(0, whole);
    CHECK(object->read(0, part));
  }
  SECTION("the checksums are missing") {
    REQUIRE(::truncate(file_of(here, ".sums").c_str(), 0) == 0);
    CHECK_FALSE(object->read(0, part));
  }
}

TEST_CASE("the least recently used objects are emptied when the folder outgrows its limit") {
  const folder here;
  const std::uint64_t each = 64 * cache_block;  // 1 MiB
  const auto cache = opened(here, 4 * each);
  const bytes whole = contents(each);
  const auto name = [](int i) { return "object " + std::to_string(i); };
  for (int i = 0; i < 4; ++i) cache->object(name(i), each)->keep(0, whole);
  // File times advance in the steps of the file system's clock.
  for (int i = 0; i < 4; ++i) std::this_thread::yield();
  const auto in_use = cache->object(name(0), each);
  for (int i = 4; i < 12; ++i) cache->object(name(i), each)->keep(0, whole);
  CHECK(cache->shrink() <= 4 * each);
  std::uint64_t on_disk = 0;
  for (const auto& one : std::filesystem::directory_iterator(here.path)) {
    struct ::stat facts {};
    REQUIRE(::stat(one.path().c_str(), &facts) == 0);
    on_disk += static_cast<std::uint64_t>(facts.st_blocks) * 512;
  }
  CHECK(on_disk <= 5 * each);
  CHECK(cache->object(name(11), each)->has(0, each));
  // A process that has an emptied object open finds no wrong bytes in it, and may fill it again.
  bytes part(100);
  CHECK_FALSE(in_use->read(0, part));
  in_use->keep(0, whole);
  CHECK(in_use->read(0, part));
}

TEST_CASE("readers see correct bytes or none while others write and empty the same objects") {
  const folder here;
  const std::uint64_t each = 32 * cache_block;
  const bytes whole = contents(each);
  std::atomic<bool> wrong{false};
  std::atomic<int> hits{0};
  {
    std::vector<std::jthread> threads;
    for (unsigned t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        const auto cache = opened(here, 3 * each);
        for (int i = 0; i < 300; ++i) {
          const auto object = cache->object("object " + std::to_string((i + t) % 5), each);
          bytes part(3 * cache_block);
          const std::uint64_t at = (i * 7919 + t) % (each - part.size());
          if (object->read(at, part)) {
            ++hits;
            if (!std::equal(part.begin(), part.end(), whole.begin() + static_cast<std::ptrdiff_t>(at))) wrong = true;
          } else {
            object->keep(0, whole);
          }
          if (i % 16 == 0) cache->shrink();
        }
      });
    }
  }
  CHECK_FALSE(wrong);
  CHECK(hits > 0);
}

TEST_CASE("a folder that cannot be made is refused and named") {
  const auto made = block_cache::open("/proc/no/cache", 1);
  REQUIRE_FALSE(made);
  CHECK(made.error().message.starts_with("making the folder '/proc/no/cache' of [storage] cache"));
}

TEST_CASE("a cache smaller than an epoch serves its share of every epoch, in any order") {
  const folder here;
  constexpr std::size_t objects = 16;
  constexpr std::size_t runs = 8;  // runs in each object
  constexpr std::uint64_t run_bytes = 8 * cache_block;
  constexpr std::uint64_t each = runs * run_bytes;  // 1 MiB
  const auto cache = opened(here, objects / 2 * each);
  cache->begin_session();
  const bytes whole = contents(run_bytes);
  bytes read(run_bytes);
  std::vector<std::size_t> order(objects * runs);
  std::iota(order.begin(), order.end(), 0);
  std::mt19937_64 draw(7);
  for (int epoch = 0; epoch < 6; ++epoch) {
    if (epoch >= 3) std::ranges::shuffle(order, draw);  // the first three are sequential: a least-recently-used cache would never hit
    std::size_t hits = 0;
    for (const std::size_t i : order) {
      const auto object = cache->object("object " + std::to_string(i / runs), each);
      if (object->read(i % runs * run_bytes, read))
        ++hits;
      else
        object->keep(i % runs * run_bytes, whole);
    }
    if (epoch > 0) CHECK(hits >= order.size() * 7 / 16);
  }
  CHECK(cache->shrink() <= objects / 2 * each);
}

TEST_CASE("objects that a new session needs stay, and others make room for them") {
  const folder here;
  constexpr std::uint64_t each = 64 * cache_block;  // 1 MiB
  const auto cache = opened(here, 4 * each);
  const bytes whole = contents(each);
  cache->begin_session();
  for (int i = 0; i < 3; ++i) cache->object("old " + std::to_string(i), each)->keep(0, whole);
  const auto begin = std::filesystem::file_time_type::clock::now();
  do cache->begin_session();  // the file system's clock advances in steps
  while (std::filesystem::last_write_time(here.path + "/session") <= begin + std::chrono::milliseconds(10));
  cache->will_use("old 1", each);
  for (int i = 0; i < 6; ++i) cache->object("new " + std::to_string(i), each)->keep(0, whole);
  CHECK_FALSE(cache->object("old 0", each)->has(0, 1));
  CHECK(cache->object("old 1", each)->has(0, each));
  CHECK_FALSE(cache->object("old 2", each)->has(0, 1));
  CHECK(cache->object("new 0", each)->has(0, each));
  CHECK(cache->object("new 1", each)->has(0, each));
  CHECK_FALSE(cache->object("new 5", each)->has(0, 1));
}

TEST_CASE("objects that no session uses make room, the oldest first, and only as many as needed") {
  std::mt19937_64 draw(11);
  for (int round = 0; round < 2000; ++round) {
    std::vector<kept_object> objects(draw() % 30);
    for (kept_object& one : objects) one = {draw() % 100, static_cast<std::int64_t>(draw() % 50)};
    const auto began = static_cast<std::int64_t>(draw() % 60);
    const std::uint64_t most = 16 * (1 + draw() % 100);
    const cache_room room = make_room(objects, began, most);
    std::uint64_t left = 0;
    for (const kept_object& one : objects) left += one.bytes;
    const bool had_room = left <= most / 16 * 15;
    std::vector<bool> gone(objects.size());
    std::int64_t latest = 0;
    for (const std::size_t i : room.emptied) {
      REQUIRE(objects[i].used < began);
      REQUIRE(left > most / 10 * 9);
      REQUIRE(objects[i].used >= latest);
      latest = objects[i].used;
      left -= objects[i].bytes;
      gone[i] = true;
    }
    REQUIRE(room.left == left);
    REQUIRE(room.full == (left > most / 16 * 15));
    REQUIRE((!had_room || room.emptied.empty()));
    for (std::size_t i = 0; i < objects.size(); ++i)
      if (!gone[i] && objects[i].bytes > 0 && objects[i].used < began) REQUIRE((had_room || left <= most / 10 * 9));
  }
}
