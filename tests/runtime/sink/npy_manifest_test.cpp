#include "runtime/sink/npy_manifest.hpp"

#include <catch2/catch_test_macros.hpp>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

using namespace penstock;
using namespace penstock::sink;

namespace {

namespace fs = std::filesystem;

struct folder {
  folder() : path(fs::temp_directory_path() / fmt::format("penstock-manifest-{}", ::getpid())) {}
  ~folder() { fs::remove_all(path); }
  [[nodiscard]] std::string manifest() const {
    std::ostringstream text;
    text << std::ifstream(path / manifest_name).rdbuf();
    return text.str();
  }
  fs::path path;
};

config settings() {
  config c;
  c.dataset.type = dataset_type::npy;
  c.dataset.path = "a \"b\"\\c.npy";
  return c;
}

std::vector<manifest_tensor> tensors(std::uint64_t rows, const std::string& second = "label") {
  static std::string name;
  name = second;
  return {{{"data", dtype::float32, {rows, 3, 4}, nullptr}, false},
          {{name, dtype::int64, {rows}, nullptr}, false}};
}

}  // namespace

TEST_CASE("a claimed folder is reused by the same stream, even by a batch with fewer rows") {
  const folder place;
  REQUIRE(claim_npy_folder(place.path, settings()));
  REQUIRE(write_npy_manifest(place.path, settings(), tensors(128)));
  const std::string before = place.manifest();
  CHECK(before.find("\"path\": \"a \\\"b\\\"\\\\c.npy\",\n") != std::string::npos);
  CHECK(before.find(
            "{\"name\": \"data\", \"role\": \"tensor\", \"dtype\": \"float32\", \"shape\": [3, 4]},\n") !=
        std::string::npos);
  config other_workers = settings();
  other_workers.loader.workers = 7;
  other_workers.sampler.epochs = 9;
  CHECK(claim_npy_folder(place.path, other_workers));
  CHECK(write_npy_manifest(place.path, other_workers, tensors(5)));
  CHECK(place.manifest() == before);
}

TEST_CASE("a folder with the batches of another stream is refused with the difference") {
  const folder place;
  REQUIRE(claim_npy_folder(place.path, settings()));
  REQUIRE(write_npy_manifest(place.path, settings(), tensors(128)));
  config smaller = settings();
  smaller.sampler.batch_size = 16;
  const auto refused = claim_npy_folder(place.path, smaller);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::sink);
  CHECK(refused.error().message.find(
            "has \"batch_size\": 128, but this run has \"batch_size\": 16; choose another --out") !=
        std::string::npos);
  config flipped = settings();
  flipped.image.flip = 0;
  CHECK_FALSE(claim_npy_folder(place.path, flipped));
  const auto other = write_npy_manifest(place.path, settings(), tensors(128, "class"));
  REQUIRE_FALSE(other);
  CHECK(other.error().message.find("\"name\": \"label\"") != std::string::npos);
}

TEST_CASE("a folder of version 0.1, whose manifest has no kind, is continued") {
  const folder place;
  REQUIRE(claim_npy_folder(place.path, settings()));
  REQUIRE(write_npy_manifest(place.path, settings(), tensors(128)));
  std::string text = place.manifest();
  const std::size_t kind = text.find("  \"kind\"");
  REQUIRE(kind != std::string::npos);
  text.erase(kind, text.find('\n', kind) + 1 - kind);
  std::ofstream(place.path / manifest_name) << text;
  CHECK(claim_npy_folder(place.path, settings()));
  config windows = settings();
  windows.sampler.kind = sampler_kind::window;
  CHECK_FALSE(claim_npy_folder(place.path, windows));
}

TEST_CASE("a folder with batches in another order is refused with the key of [sampler] that differs") {
  const folder place;
  config windows = settings();
  windows.sampler.kind = sampler_kind::window;
  windows.sampler.window = 8192;
  REQUIRE(claim_npy_folder(place.path, windows));
  REQUIRE(write_npy_manifest(place.path, windows, tensors(128)));
  CHECK(claim_npy_folder(place.path, windows));
  const auto refusal = [&](const config& c) {
    const auto ok = claim_npy_folder(place.path, c);
    return ok ? std::string() : ok.error().message;
  };
  CHECK(refusal(settings()).find("has \"kind\": \"window\", but this run has \"kind\": \"shuffle\"") != std::string::npos);
  config narrower = windows;
  narrower.sampler.window = 50;
  CHECK(refusal(narrower).find("has \"window\": 8192, but this run has \"window\": 50") != std::string::npos);
}

TEST_CASE("a folder with batches but no manifest is refused") {
  const folder place;
  fs::create_directories(place.path);
  std::ofstream(place.path / "e0-b000000.image.npy") << "x";
  const auto refused = claim_npy_folder(place.path, settings());
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message.find("holds batches (e0-b000000.image.npy) but no manifest.json") !=
        std::string::npos);
}

TEST_CASE("a tensor named like the file of indices is refused before anything is written") {
  const folder place;
  REQUIRE(claim_npy_folder(place.path, settings()));
  const auto refused = write_npy_manifest(place.path, settings(), tensors(128, "index"));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::sink);
  CHECK(refused.error().message.find("a tensor called 'index'") != std::string::npos);
  CHECK(fs::is_empty(place.path));
  CHECK_FALSE(write_npy_manifest(place.path, settings(), tensors(128, "data")));
}

TEST_CASE("a dimension that follows the longest sample of a batch is not part of the manifest") {
  const std::vector<manifest_tensor> first{{{"text", dtype::int32, {4, 17, 2}, nullptr}, false},
                                           {{"text_length", dtype::int64, {4}, nullptr}, false}};
  std::vector<manifest_tensor> second = first;
  second[0].tensor.shape = {4, 31, 2};
  CHECK(npy_manifest(settings(), first) == npy_manifest(settings(), second));
  CHECK(npy_manifest(settings(), first).find("\"shape\": [null, 2]") != std::string::npos);
}
