// `penstock bench upload|transform`: measures this machine's copy engine and memory, and how much of their
// speed a whole session reaches.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/result.hpp"

#include <penstock/config.hpp>

#include <nlohmann/json_fwd.hpp>

#include <chrono>
#include <string>

namespace penstock::cli {

[[nodiscard]] inline double seconds_since(steady_time begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct upload_bench {
  std::uint32_t workers = 8;
  std::uint64_t slot_bytes = 19'267'584;  ///< 128 photographs of 3 x 224 x 224 bytes
  std::uint32_t slots = 3;                ///< per worker
  std::uint32_t buffers = 4;
  fill_kind fill = fill_kind::stamp;
  nanoseconds time{};
  std::string device = "auto";
};
/// Bare copies first, then a session with a synthetic dataset of one sample per slot. Throws penstock::error.
nlohmann::ordered_json bench_upload(const upload_bench& what);

struct transform_bench {
  std::uint32_t rows = 256;
  std::uint32_t height = 224;
  std::uint32_t width = 224;
  image_layout layout = image_layout::nchw;
  penstock::dtype dtype = penstock::dtype::float16;
  nanoseconds time{};
  std::string device = "auto";
};
/// Compares the conversion kernel with copies of the same number of bytes. Throws penstock::error.
nlohmann::ordered_json bench_transform(const transform_bench& what);

}  // namespace penstock::cli
