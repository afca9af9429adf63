// Loading nvJPEG at run time, and which decoder a session chooses where it cannot be loaded.
#include "runtime/device/nvjpeg.hpp"

#include "runtime/device/decoder_choice.hpp"
#include "runtime/device/make_choice.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cstdlib>
#include <string>
#include <tuple>

using namespace penstock;
using namespace penstock::device;

namespace {

/// Sets PENSTOCK_NVJPEG for one test, and the version that a stand-in reports.
struct named_library {
  explicit named_library(const char* path, const char* version = "") {
    ::setenv("PENSTOCK_NVJPEG", path, 1);
    ::setenv("FAKE_NVJPEG_VERSION", version, 1);
  }
  named_library(const named_library&) = delete;
  named_library& operator=(const named_library&) = delete;
  ~named_library() {
    ::unsetenv("PENSTOCK_NVJPEG");
    ::unsetenv("FAKE_NVJPEG_VERSION");
  }
};

std::string refusal() {
  const auto opened = nvjpeg_library::open();
  REQUIRE_FALSE(opened);
  CHECK(opened.error().code == errc::device_unavailable);
  return opened.error().message;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("without nvJPEG the error says where penstock searched for it, and what to do") {
  const named_library none("/nowhere/libnvjpeg.so.13");
  const std::string why = refusal();
  for (const char* part : {"/nowhere/libnvjpeg.so.13", "PENSTOCK_NVJPEG", "decoder = \"cpu\""}) CHECK(has(why, part));
}

TEST_CASE("a library that is not nvJPEG is refused and named") {
  const named_library other(FAKE_NVML_LIBRARY);
  CHECK(has(refusal(), std::string(FAKE_NVML_LIBRARY) + " is not nvJPEG"));
}

TEST_CASE("an nvJPEG that is too old is refused with its version, the oldest one that works, and what to do") {
  const named_library old(FAKE_NVJPEG_LIBRARY, "11.9.2");
  const std::string why = refusal();
  CHECK(has(why, std::string(FAKE_NVJPEG_LIBRARY) + " is nvJPEG 11.9.2, but 12 or later is needed"));
  CHECK(has(why, "PENSTOCK_NVJPEG"));
  CHECK(has(why, "decoder = \"cpu\""));
}

TEST_CASE("an nvJPEG that lacks a function is not called too old") {
  const named_library damaged(FAKE_NVJPEG_LIBRARY, "13.0.1");
  const std::string why = refusal();
  CHECK(has(why, "is nvJPEG 13.0.1, but lacks functions that decoding needs"));
  CHECK_FALSE(has(why, "or later"));
}

TEST_CASE("a lack of device memory is reported with the requested and the free size, and what to lower") {
  const std::string why = nvjpeg_library::out_of_memory(80U << 20U, 6U << 20U, std::uint64_t{80} << 30U);
  CHECK(has(why, "requested 80.0 MiB, free 6.00 MiB of 80.0 GiB"));
  for (const char* key : {"[gpu] buffers", "[sampler] batch_size", "[image] decoder = \"cpu\""}) CHECK(has(why, key));
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

TEST_CASE("with a GPU but without a usable nvJPEG, \"gpu\" is refused and \"hybrid\" leaves all JPEGs to the workers") {
  if (!resolve_choice("cuda")) return;  // a build without a CUDA device
  for (const auto& [library, version, says] :
       {std::tuple{"/nowhere/libnvjpeg.so.13", "", "/nowhere/"}, std::tuple{FAKE_NVJPEG_LIBRARY, "11.9.2", "11.9.2"}}) {
    const named_library unusable(library, version);
    config settings;
    settings.gpu.device = "cuda";
    settings.image.decoder = decoder_rule::gpu;
    const auto refused = choose_decoder(settings);
    REQUIRE_FALSE(refused);
    CHECK(has(refused.error().message, says));
    settings.image.decoder = decoder_rule::hybrid;
    const auto choice = choose_decoder(settings);
    REQUIRE(choice);
    CHECK(choice->by == decoder_rule::cpu);
    CHECK(has(choice->notice, says));
    CHECK(has(choice->notice, "the workers decode all JPEGs"));
  }
}
