#include "runtime/sink/digest.hpp"
#include "runtime/sink/npy_writer.hpp"

#include <catch2/catch_test_macros.hpp>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>

using namespace penstock;
using namespace penstock::sink;

namespace {

namespace fs = std::filesystem;

struct folder {
  folder() : path(fs::temp_directory_path() / fmt::format("penstock-sink-{}", ::getpid())) {
    fs::create_directories(path);
  }
  ~folder() { fs::remove_all(path); }
  fs::path path;
};

struct batch {
  std::vector<std::uint64_t> samples{3, 1, 4};
  std::vector<std::uint8_t> pixels = std::vector<std::uint8_t>(12, 7);
  std::vector<std::int64_t> labels{0, 1, 2};
  std::string name = "image";
  dtype type = dtype::uint8;
  std::vector<std::uint64_t> shape{3, 4};

  [[nodiscard]] std::uint64_t digest() {
    const std::vector<tensor_view> tensors{{name, type, shape, pixels.data()},
                                           {"label", dtype::int64, {3}, labels.data()}};
    return batch_digest(samples, tensors);
  }
};

std::string content(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("a digest changes with every sample, name, type, shape and byte") {
  const std::uint64_t original = batch().digest();
  batch b;
  CHECK(b.digest() == original);
  SECTION("sample") {
    b.samples[1] = 2;
  }
  SECTION("order of samples") {
    std::swap(b.samples[0], b.samples[1]);
  }
  SECTION("name") {
    b.name = "imagf";
  }
  SECTION("type") {
    b.type = dtype::int8;
  }
  SECTION("shape") {
    b.shape = {3, 2, 2};
  }
  SECTION("first byte") {
    b.pixels.front() ^= 1;
  }
  SECTION("last byte") {
    b.pixels.back() ^= 1;
  }
  SECTION("label") {
    b.labels[2] = 3;
  }
  CHECK(b.digest() != original);
}

TEST_CASE("an npy header is padded to 64 bytes and gives type and shape in NumPy's format") {
  for (const auto& [shape, text] : std::vector<std::pair<std::vector<std::uint64_t>, std::string>>{
           {{}, "'shape': (), "},
           {{5}, "'shape': (5,), "},
           {{5, 2}, "'shape': (5, 2), "},
           {{0, 224, 224, 3}, "'shape': (0, 224, 224, 3), "}}) {
    const std::string header = npy_header(dtype::float16, shape);
    CHECK(header.size() % 64 == 0);
    CHECK(header.ends_with("\n"));
    CHECK(header.find("'descr': '<f2', 'fortran_order': False, " + text) == 10 + 1);
  }
}

TEST_CASE("a written file is complete and replaces the previous one") {
  const folder place;
  std::vector<std::int32_t> values(6);
  std::iota(values.begin(), values.end(), 1);
  const tensor_view tensor{"x", dtype::int32, {2, 3}, values.data()};
  REQUIRE(write_npy(place.path / "x.npy", tensor));
  REQUIRE(write_npy(place.path / "x.npy", tensor));
  const std::string text = content(place.path / "x.npy");
  CHECK(text.size() == npy_header(dtype::int32, {2, 3}).size() + 24);
  CHECK(text.ends_with(std::string(reinterpret_cast<const char*>(values.data()), 24)));
  CHECK(std::distance(fs::directory_iterator(place.path), fs::directory_iterator()) == 1);
}

TEST_CASE("an unwritable path is refused and named, and no file is left behind") {
  const folder place;
  std::vector<std::uint8_t> bytes(1 << 20);
  const tensor_view tensor{"x", dtype::uint8, {bytes.size()}, bytes.data()};
  const auto nowhere = write_npy(place.path / "missing" / "x.npy", tensor);
  REQUIRE_FALSE(nowhere);
  CHECK(nowhere.error().message.find("missing/x.npy': No such file or directory") != std::string::npos);

  // A limit on file sizes simulates a full disk: the write fails midway.
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto old = ::signal(SIGXFSZ, SIG_IGN);
  rlimit tight = before;
  tight.rlim_cur = 64 * 1024;
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &tight) == 0);
  const auto full = write_npy(place.path / "x.npy", tensor);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  ::signal(SIGXFSZ, old);
  REQUIRE_FALSE(full);
  CHECK(full.error().code == errc::sink);
  CHECK(fs::is_empty(place.path));
}
