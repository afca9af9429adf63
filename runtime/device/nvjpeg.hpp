// nvJPEG, the decoder of CUDA's toolkit, opened at run time. It is needed neither to build penstock nor to run it
// without [image] decoder. Used by the CUDA device, by sessions and by doctor.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/device/driver_library.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

struct CUstream_st;
struct nvjpegHandle;
struct nvjpegJpegState;

namespace penstock::device {

/// The parts of nvjpeg.h that we use. NVIDIA keeps these values and layouts within a major version.
namespace nvjpeg_abi {
inline constexpr int success = 0;
inline constexpr int allocator_failure = 5;
inline constexpr int architecture_mismatch = 7;
inline constexpr int not_implemented = 9;
inline constexpr int backend_hybrid = 1;
inline constexpr int backend_gpu_hybrid = 2;
inline constexpr int backend_hardware = 3;
inline constexpr int rgb_interleaved = 5;

struct image {
  unsigned char* channel[4];
  std::size_t pitch[4];
};
struct device_allocator {
  int (*take)(void**, std::size_t);
  int (*give_back)(void*);
};
}  // namespace nvjpeg_abi

class nvjpeg_library {
 public:
  /// Opens the file that PENSTOCK_NVJPEG names. Without it, searches the dynamic loader's paths, the active Python
  /// environment and CUDA's own folder. Refuses (errc::device_unavailable) if there is none, or only one older than 12.
  static result<std::shared_ptr<const nvjpeg_library>> open();

  [[nodiscard]] std::string path() const { return library_.path(); }
  [[nodiscard]] std::string version_text() const;
  [[nodiscard]] static std::string text_of(int status);
  /// The message for a lack of device memory: the sizes in bytes, and what to lower.
  [[nodiscard]] static std::string out_of_memory(std::uint64_t requested, std::uint64_t free, std::uint64_t total);

  // Arguments as in nvjpegCreateEx etc.
  int (*create)(int, nvjpeg_abi::device_allocator*, void*, unsigned, nvjpegHandle**) = nullptr;
  int (*destroy)(nvjpegHandle*) = nullptr;
  int (*create_state)(nvjpegHandle*, nvjpegJpegState**) = nullptr;
  int (*destroy_state)(nvjpegJpegState*) = nullptr;
  int (*begin_batch)(nvjpegHandle*, nvjpegJpegState*, int, int, int) = nullptr;
  int (*decode_batch)(nvjpegHandle*, nvjpegJpegState*, const unsigned char* const*, const std::size_t*,
                      nvjpeg_abi::image*, CUstream_st*) = nullptr;

 private:
  explicit nvjpeg_library(driver_library library) : library_(std::move(library)) {}
  [[nodiscard]] bool find_all();

  driver_library library_;
  int version_[3] = {};
};

}  // namespace penstock::device
