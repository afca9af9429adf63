// <penstock/cuda.hpp> with batches of the host device: neither compiling it nor getting its errors requires CUDA.
#include "tests/actors/session/support.hpp"

#include <penstock/cuda.hpp>

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::testing;

TEST_CASE("a tensor is accessible as a span of its own element type and of no other") {
  Session session(small(), quietly());
  auto batch = session.next();
  REQUIRE(batch);
  const auto data = cuda::tensor<std::uint8_t>(*batch, "data");
  CHECK(data.data() == batch->tensor("data").data);
  CHECK(data.size() == batch->rows() * 4096);
  try {
    static_cast<void>(cuda::tensor<__half>(*batch, "data"));
    FAIL("a span of halves was given");
  } catch (const error& e) {
    CHECK(e.code() == errc::usage);
    CHECK(std::string(e.what()) == "tensor 'data' is uint8, not float16");
  }
}

TEST_CASE("a batch on a stream is returned at the end of the scope, even if released before") {
  config c = small();
  c.gpu.buffers = 1;
  Session session(c, quietly());
  for (int i = 0; i < 3; ++i) {
    auto batch = session.next();
    REQUIRE(batch);
    {
      const cuda::batch_on_stream use(*batch, nullptr);
      if (i == 1) cuda::release(*batch, nullptr);
    }
    CHECK_FALSE(*batch);
  }
}

TEST_CASE("stream handles are the streams themselves") {
  int place = 0;
  auto* const stream = reinterpret_cast<CUstream_st*>(&place);
  CHECK(cuda::handle_of(stream).native == stream);
  CHECK(cuda::stream_of(cuda::handle_of(stream)) == stream);
}
