// Decodes the encoded pictures of batches on the GPU, with nvJPEG. Has its own thread, because nvJPEG's calls take about
// as long as the decoding itself and would block the owner. Used by the CUDA device.
//
// Batches are processed one after the other on one stream. Small tensors and decoded rows are copied from the slot.
// Pictures are decoded from the slot, in parts, to the pixels of one of two lanes, and resized from there into their
// rows. Then everything is converted as it is without a decoder.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/encoded_picture.hpp"
#include "runtime/base/result.hpp"
#include "runtime/device/cuda/cuda_context.hpp"
#include "runtime/device/cuda/jpeg_engine.hpp"
#include "runtime/device/transfer_plan.hpp"

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace penstock::device {

class jpeg_decoder {
 public:
  struct order {
    const std::byte* slot = nullptr;  // in host memory; valid until `copied`
    std::byte* staging = nullptr;
    std::byte* data = nullptr;
    std::uint32_t rows = 0;
    std::vector<cudaEvent_t> released{};  // events that must be complete before the buffer is written
    cudaEvent_t copied = nullptr;         // recorded when the slot is no longer read
    cudaEvent_t ready = nullptr;
  };

  /// Call on the owner's thread, with the GPU selected. Refuses what jpeg_engine::start and the device refuse;
  /// errc::device_out_of_memory names the requested size.
  static result<std::unique_ptr<jpeg_decoder>> open(const cuda_context& context, const transfer_plan& plan);
  ~jpeg_decoder();
  jpeg_decoder(const jpeg_decoder&) = delete;
  jpeg_decoder& operator=(const jpeg_decoder&) = delete;

  /// Returns the order's number. Once begun() has reached that number, the order's events have been recorded.
  std::uint64_t push(order what);
  [[nodiscard]] std::uint64_t begun() const noexcept { return begun_.load(std::memory_order_acquire); }

  /// Stops the decoder for the lifetime of the object: the constructor waits for the order in progress. Used
  /// while memory is page-locked, because that would delay nvJPEG's calls by hundreds of milliseconds.
  class pause {
   public:
    explicit pause(jpeg_decoder& of);
    ~pause();
    pause(const pause&) = delete;
    pause& operator=(const pause&) = delete;

   private:
    jpeg_decoder& of_;
  };

  struct trouble {
    cudaError_t status = cudaSuccess;  // cudaSuccess if CUDA reported no error
    errc code = errc::device_unavailable;
    std::string what;
  };
  /// The first error; later orders are not carried out. Call after the events of an order are
  /// complete: only then is it known whether the right decoder produced the order's pixels.
  [[nodiscard]] std::optional<trouble> failed() const;
  /// Ends the thread. Returns false if it did not end in time; everything that it uses must then stay allocated.
  [[nodiscard]] bool close(nanoseconds at_most) noexcept;

 private:
  // The lanes alternate: one part is decoded while the previous one is resized.
  struct lane {
    std::uint8_t* pixels = nullptr;
    cudaEvent_t resized = nullptr;
  };

  jpeg_decoder(const cuda_context& context, const transfer_plan& plan) : context_(context), plan_(plan) {}
  result<void> prepare();
  void run();
  std::optional<trouble> carry_out(const order& what);
  cudaError_t copy_rows(const order& what, const std::vector<encoded_picture>& headers);
  std::optional<trouble> decode(const order& what, const std::vector<encoded_picture>& headers);
  std::optional<trouble> decode_part(const order& what, const std::vector<encoded_picture>& headers,
                                     const std::vector<std::uint32_t>& rows);

  const cuda_context& context_;
  const transfer_plan& plan_;
  cudaStream_t stream_ = nullptr;
  std::array<lane, jpeg_engine::lanes> lanes_{};
  std::size_t next_lane_ = 0;
  std::unique_ptr<jpeg_engine> engine_;
  std::uint64_t decoded_ = 0;  // number of pictures
  std::uint64_t left_to_workers_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable moved_;
  std::deque<order> waiting_;
  std::uint64_t pushed_ = 0;
  unsigned pauses_ = 0;
  bool busy_ = false;
  bool closing_ = false;
  bool ended_ = false;
  std::optional<trouble> failed_;
  std::atomic<std::uint64_t> begun_{0};
  std::thread thread_;
};

}  // namespace penstock::device
