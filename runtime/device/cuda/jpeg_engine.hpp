// Runs nvJPEG on this GPU, one part of a batch at a time, and checks that it uses the GPU's engines. Used by the JPEG decoder.
//
// nvJPEG may silently decode on the CPU although the engines were requested: 20 times slower and with different pixels.
// So a known picture (reference_jpeg.hpp) is decoded at the start, and its pixels must differ from the CPU's. It is
// decoded again at the end of each part: a batch counts as ready only if these pixels equal those from the start.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/result.hpp"
#include "runtime/device/nvjpeg.hpp"

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::device {

/// Allocates device memory. Refuses (errc::device_out_of_memory), naming the requested and free bytes and the config key to lower.
result<std::uint8_t*> take_for_jpegs(std::uint64_t bytes);

class jpeg_engine {
 public:
  static constexpr std::size_t lanes = 2;
  static constexpr std::size_t pictures_max = 64;  ///< the most pictures in one part

  struct picture {
    const unsigned char* file = nullptr;
    std::size_t bytes = 0;
    std::uint8_t* pixels = nullptr;  ///< interleaved RGB
    std::size_t pitch = 0;
  };

  /// Queues all work on `stream`, which must outlive this object. Refuses with nvJPEG's error, or if nvJPEG does not
  /// use the engines of a GPU that has them.
  static result<std::unique_ptr<jpeg_engine>> start(cudaStream_t stream);
  ~jpeg_engine();
  jpeg_engine(const jpeg_engine&) = delete;
  jpeg_engine& operator=(const jpeg_engine&) = delete;

  /// Takes about as long as the decoding. Pixels are written during the call, not in the order of the stream. Before a
  /// lane, or the pixels of a part, are reused, the work queued after that part must be complete.
  result<void> decode(std::size_t lane, std::span<const picture> part);

  /// Whether the right decoder produced every part so far. Includes a part only once an event recorded after it is complete.
  [[nodiscard]] bool has_kept_decoder() const noexcept;
  [[nodiscard]] std::string version() const { return library_->version_text(); }
  [[nodiscard]] nanoseconds longest_call() const noexcept { return longest_call_; }

 private:
  struct state {
    nvjpegJpegState* of_nvjpeg = nullptr;
    int pictures = 0;                   // the number of pictures that nvJPEG is prepared for
    std::uint8_t* reference = nullptr;  // pixels of the reference picture, on the device
  };

  explicit jpeg_engine(cudaStream_t stream);
  result<void> allocate();
  result<void> try_starts();
  result<bool> try_start();
  result<void> try_out(state& in, std::vector<std::uint8_t>& pixels);
  result<std::vector<std::uint8_t>> reference_of_cpu();
  int call(state& in, std::span<const unsigned char* const> files, std::span<const std::size_t> lengths,
           std::span<nvjpeg_abi::image> images);
  void stop() noexcept;
  [[nodiscard]] failure refused(int status, std::string_view doing) const;

  cudaStream_t stream_;
  std::shared_ptr<const nvjpeg_library> library_;
  nvjpegHandle* handle_ = nullptr;
  bool has_engines_ = false;
  std::array<state, lanes> states_{};
  std::vector<unsigned char> reference_;
  std::uint8_t* expected_ = nullptr;  // the reference picture's pixels, on the device
  std::uint32_t* differ_ = nullptr;   // page-locked; 1 once the reference picture had different pixels
  nanoseconds longest_call_{};
};

}  // namespace penstock::device
