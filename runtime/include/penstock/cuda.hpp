// Typed helpers for programs that use CUDA: streams as handles, tensors of a batch as spans of device memory.
// Header-only. It names CUDA's types without including its headers, so it works with both the runtime API and
// the driver API.
#pragma once

#include <penstock/batch.hpp>
#include <penstock/error.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

struct CUstream_st;  // behind cudaStream_t and CUstream
struct __half;
struct __nv_bfloat16;

namespace penstock::cuda {

/// A cudaStream_t or a CUstream; cudaStreamPerThread and cudaStreamLegacy are fine too.
[[nodiscard]] inline stream_handle handle_of(CUstream_st* stream) noexcept {
  return {stream};
}
[[nodiscard]] inline CUstream_st* stream_of(stream_handle handle) noexcept {
  return static_cast<CUstream_st*>(handle.native);
}

/// Batch::wait and Batch::release with CUDA's own type.
inline void wait(const Batch& batch, CUstream_st* stream) {
  batch.wait(handle_of(stream));
}
inline void release(Batch& batch, CUstream_st* stream) {
  batch.release(handle_of(stream));
}

/// Scoped use of a batch on one stream: waits for the batch on construction; on destruction, returns the
/// buffer once all work queued on the stream so far is done. If the stream is being captured into a graph at
/// the end of the scope, the batch is still held. Borrows the batch.
class batch_on_stream {
 public:
  batch_on_stream(Batch& batch, CUstream_st* stream) : batch_(&batch), stream_(stream) {
    wait(batch, stream);
  }
  batch_on_stream(const batch_on_stream&) = delete;
  batch_on_stream& operator=(const batch_on_stream&) = delete;
  ~batch_on_stream() {
    try {
      if (*batch_) release(*batch_, stream_);
    } catch (const error&) {
      // The stream is being captured, the session has ended, or the device is broken. The
      // session's next() reports which.
    }
  }

 private:
  Batch* batch_;
  CUstream_st* stream_;
};

/// Elements in device memory. Pass them to kernels, and do not read them on the host.
template <class T>
class device_span {
 public:
  constexpr device_span() noexcept = default;
  constexpr device_span(T* data, std::size_t size) noexcept : data_(data), size_(size) {}
  [[nodiscard]] constexpr T* data() const noexcept { return data_; }
  [[nodiscard]] constexpr std::size_t size() const noexcept { return size_; }
  [[nodiscard]] constexpr std::size_t size_bytes() const noexcept { return size_ * sizeof(T); }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

/// The dtype whose elements are Ts; not defined for any other type.
template <class T>
struct dtype_of;
template <>
struct dtype_of<std::uint8_t> : std::integral_constant<dtype, dtype::uint8> {};
template <>
struct dtype_of<std::int8_t> : std::integral_constant<dtype, dtype::int8> {};
template <>
struct dtype_of<std::uint16_t> : std::integral_constant<dtype, dtype::uint16> {};
template <>
struct dtype_of<std::int16_t> : std::integral_constant<dtype, dtype::int16> {};
template <>
struct dtype_of<std::uint32_t> : std::integral_constant<dtype, dtype::uint32> {};
template <>
struct dtype_of<std::int32_t> : std::integral_constant<dtype, dtype::int32> {};
template <>
struct dtype_of<std::uint64_t> : std::integral_constant<dtype, dtype::uint64> {};
template <>
struct dtype_of<std::int64_t> : std::integral_constant<dtype, dtype::int64> {};
template <>
struct dtype_of<__half> : std::integral_constant<dtype, dtype::float16> {};
template <>
struct dtype_of<__nv_bfloat16> : std::integral_constant<dtype, dtype::bfloat16> {};
template <>
struct dtype_of<float> : std::integral_constant<dtype, dtype::float32> {};
template <>
struct dtype_of<double> : std::integral_constant<dtype, dtype::float64> {};

/// A tensor of the batch with its element type: tensor<float>(batch, "image"). Valid until the batch is
/// released. Throws error (errc::usage) when there is no such tensor or its elements have a different type.
template <class T>
[[nodiscard]] device_span<T> tensor(const Batch& batch, std::string_view name) {
  const tensor_view& t = batch.tensor(name);
  if (t.type != dtype_of<T>::value) {
    throw error({errc::usage,
                 "tensor '" + std::string(name) + "' is " + std::string(name_of(t.type)) + ", not " +
                     std::string(name_of(dtype_of<T>::value)),
                 0});
  }
  return {static_cast<T*>(t.data), static_cast<std::size_t>(t.bytes() / size_of(t.type))};
}

}  // namespace penstock::cuda
