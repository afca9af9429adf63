#include "runtime/dataset/listing/index.hpp"

#include "tests/runtime/dataset/fixtures.hpp"

#include <penstock/random.hpp>

#include <catch2/catch_test_macros.hpp>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>

using namespace penstock;
using testing::bytes;
using testing::temporary_folder;

namespace {

listing small_listing() {
  const temporary_folder folder;
  folder.write("a/1.jpg", "x");
  folder.write("a/sub/2.png", "xx");
  folder.write("c/\xff.jpg", "xx");
  folder.make_folder("b");
  return *list_image_folder(folder.path());
}

listing small_listing_of_objects() {
  listing list;
  list.of_objects = true;
  list.classes = {"a", "b"};
  list.add("a/1.jpg", 10, "\"tag\"");
  list.add("b/1.jpg", 20).label = 1;
  list.samples = 2;
  list.fingerprint = fingerprint_of(list);
  return list;
}

bytes contents(int fd) {
  bytes all(static_cast<std::size_t>(::lseek(fd, 0, SEEK_END)));
  REQUIRE(::pread(fd, all.data(), all.size(), 0) == static_cast<ssize_t>(all.size()));
  return all;
}

unique_fd sealed(const bytes& content, int seals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) {
  unique_fd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(::write(fd.get(), content.data(), content.size()) == static_cast<ssize_t>(content.size()));
  if (seals != 0) REQUIRE(::fcntl(fd.get(), F_ADD_SEALS, seals) == 0);
  return fd;
}

}  // namespace

TEST_CASE("an index contains what was listed, even after its descriptor is closed") {
  const listing list = small_listing();
  auto fd = seal_index(list);
  REQUIRE(fd);
  auto index = index_view::map(fd->get());
  REQUIRE(index);
  fd->reset();
  CHECK(index->type() == dataset_type::image_folder);
  CHECK(index->samples() == 3);
  CHECK(index->files() == 3);
  CHECK(index->fingerprint() == list.fingerprint);
  CHECK(index->classes() == 3);
  CHECK(index->class_name(1) == "b");
  CHECK(index->name(0) == "a/1.jpg");
  CHECK(index->name(1) == "a/sub/2.png");
  CHECK(index->name(2) == "c/\xff.jpg");
  CHECK(index->class_of(0) == 0);
  CHECK(index->class_of(2) == 2);
  const index_view moved = std::move(*index);
  CHECK(moved.name(2) == "c/\xff.jpg");
}

TEST_CASE("an index of records has their type, shape and offsets") {
  const temporary_folder folder;
  folder.write("0.bin", std::string(24, 'x'));
  folder.write("1.bin", std::string(12, 'y'));
  const auto list = list_raw(folder.path(), {3, 2}, dtype::uint16);
  REQUIRE(list);
  const auto index = index_view::map(seal_index(*list)->get());
  REQUIRE(index);
  CHECK(index->type() == dataset_type::raw);
  CHECK(index->samples() == 3);
  CHECK(index->files() == 2);
  CHECK(index->element() == dtype::uint16);
  CHECK(index->shape() == std::vector<std::uint32_t>{3, 2});
  CHECK(index->size_of_file(1) == 12);
  CHECK(index->data_at(1) == 0);
  CHECK(index->class_of(1) == 0);
}

TEST_CASE("an index of objects has their sizes and versions, which are not part of the fingerprint") {
  listing list = small_listing_of_objects();
  const auto index = index_view::map(seal_index(list)->get());
  REQUIRE(index);
  CHECK(index->name(0) == "a/1.jpg");
  CHECK(index->tag(0) == "\"tag\"");
  CHECK(index->tag(1).empty());
  CHECK(index->name(1) == "b/1.jpg");
  CHECK(index->size_of_file(1) == 20);
  CHECK(index->class_of(1) == 1);
  list.files[0].tag_size = 0;
  CHECK(fingerprint_of(list) == list.fingerprint);
}

TEST_CASE("an index cannot be written, grown or shrunk, and is not inherited") {
  const auto fd = seal_index(small_listing());
  REQUIRE(fd);
  CHECK(::write(fd->get(), "x", 1) < 0);
  CHECK(::ftruncate(fd->get(), 0) < 0);
  CHECK(::ftruncate(fd->get(), 1 << 20) < 0);
  CHECK(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd->get(), 0) == MAP_FAILED);
  CHECK((::fcntl(fd->get(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("a descriptor that is not a sealed index is refused") {
  const temporary_folder folder;
  folder.write("file", std::string(4096, 'x'));
  const unique_fd file(::open(folder.path("file").c_str(), O_RDONLY | O_CLOEXEC));
  CHECK(index_view::map(file.get()).error().code == errc::protocol);
  CHECK(index_view::map(-1).error().code == errc::protocol);
  const bytes good = contents(seal_index(small_listing())->get());
  CHECK(index_view::map(sealed(good, 0).get()).error().message == "the dataset's index is not sealed");
  CHECK(index_view::map(sealed(good, F_SEAL_WRITE | F_SEAL_SEAL).get()).error().message ==
        "the dataset's index is not sealed");
  CHECK(index_view::map(sealed({}).get()).error().message == "the dataset's index is only 0 bytes long");
  CHECK(index_view::map(sealed(bytes(5000)).get()).error().message == "this is not the index of a dataset");
  CHECK(index_view::map(sealed(good).get()));
}

TEST_CASE("an index that is cut, or longer than its header says, is refused") {
  const bytes good = contents(seal_index(small_listing())->get());
  for (std::size_t size = 0; size < good.size(); ++size) {
    REQUIRE_FALSE(
        index_view::map(sealed(bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size))).get()));
  }
  bytes longer = good;
  longer.push_back(std::byte{0});
  CHECK_FALSE(index_view::map(sealed(longer).get()));
}

TEST_CASE("an index with garbage anywhere is refused, or all of it can be read safely") {
  random_source random(1, 0, 0);
  const temporary_folder folder;
  folder.write("0.bin", std::string(24, 'x'));
  const bytes images = contents(seal_index(small_listing())->get());
  const bytes records = contents(seal_index(*list_raw(folder.path(), {3, 2}, dtype::uint16))->get());
  const bytes objects = contents(seal_index(small_listing_of_objects())->get());
  for (int i = 0; i < 6000; ++i) {
    bytes garbled = i % 3 == 0 ? images : i % 3 == 1 ? records : objects;
    for (std::uint32_t flips = 1 + random.below(3); flips > 0; --flips) {
      // Change mostly the numbers, sometimes to extreme values.
      const std::uint32_t at = random.below(static_cast<std::uint32_t>(garbled.size()));
      garbled[at] = random.below(4) == 0 ? std::byte{0xff} : static_cast<std::byte>(random() & 0xffU);
    }
    const auto index = index_view::map(sealed(garbled).get());
    if (!index) continue;
    std::size_t sum = index->fingerprint().size() + index->shape().size();
    for (std::uint64_t f = 0; f < index->files(); ++f) {
      for (const char c : index->name(f)) sum += static_cast<unsigned char>(c);
      for (const char c : index->tag(f)) sum += static_cast<unsigned char>(c);
      if (index->classes() > 0) sum += index->class_name(index->class_of(f)).size();
      sum += index->class_of(f) + index->size_of_file(f) + index->data_at(f);
    }
    REQUIRE(sum < ~std::size_t{0});
  }
}

TEST_CASE("a resource limit on files is an error with a message, not a SIGXFSZ") {
  ::rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const listing list = small_listing();
  ::rlimit tight = before;
  tight.rlim_cur = 100;
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &tight) == 0);
  const auto fd = seal_index(list);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  REQUIRE_FALSE(fd);
  CHECK(fd.error().code == errc::out_of_memory);
  CHECK(fd.error().message.find("(ulimit -f) is 100 B") != std::string::npos);
}
