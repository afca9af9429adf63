// Loading NCCL at run time, and communicators that never block, with the stand-in of tests/fake_nccl.
#include "runtime/device/nccl.hpp"

#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <cstdlib>
#include <thread>

using namespace penstock;
using namespace penstock::device;

namespace {

/// Sets PENSTOCK_NCCL for one test.
struct named_library {
  explicit named_library(const char* path) { ::setenv("PENSTOCK_NCCL", path, 1); }
  named_library(const named_library&) = delete;
  named_library& operator=(const named_library&) = delete;
  ~named_library() { ::unsetenv("PENSTOCK_NCCL"); }
};

/// Polls until the communicator is made; false if that takes too long.
bool becomes_ready(const nccl_communicator& one) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (std::chrono::steady_clock::now() < end) {
    const auto state = one.state();
    if (!state) return false;
    if (*state) return true;
    std::this_thread::yield();
  }
  return false;
}

}  // namespace

TEST_CASE("a missing library is an error that says how to specify one") {
  const named_library none("/nowhere/libnccl.so.2");
  const auto opened = nccl_library::open();
  REQUIRE_FALSE(opened);
  CHECK(opened.error().code == errc::device_unavailable);
  CHECK(opened.error().message.find("/nowhere/libnccl.so.2") != std::string::npos);
  CHECK(opened.error().message.find("PENSTOCK_NCCL") != std::string::npos);
}

TEST_CASE("a library that is not NCCL is refused") {
  const named_library other(FAKE_NVML_LIBRARY);
  CHECK_FALSE(nccl_library::open());
}

TEST_CASE("two ranks make a communicator with one id, and abort it") {
  const named_library fake(FAKE_NCCL_LIBRARY);
  const auto library = nccl_library::open();
  REQUIRE(library);
  CHECK((*library)->version_text() == "2.18.0");
  CHECK((*library)->works_on_host());
  const auto id = (*library)->draw_id();
  REQUIRE(id);
  CHECK(id->size() == nccl_abi::id_bytes);
  const auto first = nccl_communicator::begin(*library, *id, 0, 2);
  REQUIRE(first);
  CHECK((*first)->state() == false);  // the other rank has not joined
  const auto second = nccl_communicator::begin(*library, *id, 1, 2);
  REQUIRE(second);
  CHECK(becomes_ready(**first));
  CHECK(becomes_ready(**second));
  (*first)->abort();
  (*second)->abort();
  CHECK((*first)->handle() == nullptr);
}

TEST_CASE("an id of another length is refused") {
  const named_library fake(FAKE_NCCL_LIBRARY);
  const auto library = nccl_library::open();
  REQUIRE(library);
  CHECK_FALSE(nccl_communicator::begin(*library, "short", 0, 1));
}
