// Loading nvJPEG at run time, and which decoder a session chooses where it cannot be loaded.
#include "runtime/device/nvjpeg.hpp"

#include "runtime/device/decoder_choice.hpp"
#include "runtime/device/make_choice.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cstdlib>

using namespace penstock;
using namespace penstock::device;

namespace {

/// Sets PENSTOCK_NVJPEG for one test.
struct named_library {
  explicit named_library(const char* path) { ::setenv("PENSTOCK_NVJPEG", path, 1); }
  named_library(const named_library&) = delete;
  named_library& operator=(const named_library&) = delete;
  ~named_library() { ::unsetenv("PENSTOCK_NVJPEG"); }
};

}  // namespace

TEST_CASE("without nvJPEG the error says where penstock searched for it, and what to do") {
  const named_library none("/nowhere/libnvjpeg.so.13");
  const auto opened = nvjpeg_library::open();
  REQUIRE_FALSE(opened);
  CHECK(opened.error().code == errc::device_unavailable);
  for (const char* part : {"/nowhere/libnvjpeg.so.13", "PENSTOCK_NVJPEG", "decoder = \"cpu\""})
    CHECK(opened.error().message.find(part) != std::string::npos);
}

TEST_CASE("a library that is not nvJPEG is refused and named") {
  const named_library other(FAKE_NVML_LIBRARY);
  const auto opened = nvjpeg_library::open();
  REQUIRE_FALSE(opened);
  CHECK(opened.error().message.find("is not nvJPEG") != std::string::npos);
}

TEST_CASE("the host device leaves all JPEGs to the workers and reports that") {
  config settings;
  settings.gpu.device = "host";
  settings.image.decoder = decoder_rule::gpu;
  const auto choice = choose_decoder(settings);
  REQUIRE(choice);
  CHECK(choice->by == decoder_rule::cpu);
  CHECK(choice->decoder.empty());
  CHECK(choice->notice.find("host device") != std::string::npos);
  settings.image.decoder = decoder_rule::cpu;
  CHECK(choose_decoder(settings)->notice.empty());
}

TEST_CASE(
    "with a GPU but without nvJPEG, \"gpu\" is refused and \"hybrid\" leaves all JPEGs to the workers") {
  if (!resolve_choice("cuda")) return;  // a build without a CUDA device
  const named_library none("/nowhere/libnvjpeg.so.13");
  config settings;
  settings.gpu.device = "cuda";
  settings.image.decoder = decoder_rule::gpu;
  const auto refused = choose_decoder(settings);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message.find("/nowhere/") != std::string::npos);
  settings.image.decoder = decoder_rule::hybrid;
  const auto choice = choose_decoder(settings);
  REQUIRE(choice);
  CHECK(choice->by == decoder_rule::cpu);
  CHECK(choice->notice.find("/nowhere/") != std::string::npos);
}
