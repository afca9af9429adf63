#include "runtime/device/cuda/jpeg_engine.hpp"

#include "runtime/base/log.hpp"
#include "runtime/device/cuda/resize.hpp"
#include "runtime/device/reference_jpeg.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace penstock::device {
namespace {

// How many times to try to make nvJPEG use the GPU's engines.
constexpr int starts_max = 5;

// Size of the last allocation for nvJPEG that failed on this thread.
thread_local std::uint64_t asked_in_vain = 0;

int take(void** memory, std::size_t bytes) {
  const auto status = cudaMalloc(memory, bytes);
  if (status == cudaSuccess) return 0;
  cudaGetLastError();
  asked_in_vain = bytes;
  return status;
}

int give_back(void* memory) {
  return cudaFree(memory);
}

std::string out_of_memory() {
  std::size_t free = 0;
  std::size_t total = 0;
  cudaMemGetInfo(&free, &total);
  return nvjpeg_library::out_of_memory(asked_in_vain, free, total);
}

result<void> fine(cudaError_t status) {
  if (status == cudaSuccess) return {};
  cudaGetLastError();
  return refuse(errc::device_unavailable, "preparing to decode JPEGs on the GPU, or an earlier operation: {}",
                cudaGetErrorString(status));
}

nvjpeg_abi::image image_of(std::uint8_t* pixels, std::size_t pitch) {
  nvjpeg_abi::image image{};
  image.channel[0] = pixels;
  image.pitch[0] = pitch;
  return image;
}

constexpr std::size_t reference_pitch = std::size_t{reference_side} * 3;

}  // namespace

result<std::uint8_t*> take_for_jpegs(std::uint64_t bytes) {
  void* memory = nullptr;
  if (take(&memory, bytes) == 0) return static_cast<std::uint8_t*>(memory);
  return refuse(errc::device_out_of_memory, "{}", out_of_memory());
}

result<std::unique_ptr<jpeg_engine>> jpeg_engine::start(cudaStream_t stream) {
  std::unique_ptr<jpeg_engine> made(new jpeg_engine(stream));
  auto library = nvjpeg_library::open();
  if (!library) return tl::unexpected(std::move(library.error()));
  made->library_ = std::move(*library);
  if (auto ok = made->allocate(); !ok) return tl::unexpected(std::move(ok.error()));
  if (auto ok = made->try_starts(); !ok) return tl::unexpected(std::move(ok.error()));
  return made;
}

jpeg_engine::jpeg_engine(cudaStream_t stream) : stream_(stream), reference_(reference_jpeg()) {}

jpeg_engine::~jpeg_engine() {
  stop();
  for (const state& one : states_) cudaFree(one.reference);
  cudaFree(expected_);
  if (differ_ != nullptr) cudaFreeHost(differ_);
  cudaGetLastError();
}

result<void> jpeg_engine::decode(std::size_t lane, std::span<const picture> part) {
  std::array<const unsigned char*, pictures_max + 1> files{};
  std::array<std::size_t, pictures_max + 1> lengths{};
  std::array<nvjpeg_abi::image, pictures_max + 1> images{};
  state& in = states_[lane];
  for (std::size_t i = 0; i < part.size(); ++i) {
    files[i] = part[i].file;
    lengths[i] = part[i].bytes;
    images[i] = image_of(part[i].pixels, part[i].pitch);
  }
  files[part.size()] = reference_.data();
  lengths[part.size()] = reference_.size();
  images[part.size()] = image_of(in.reference, reference_pitch);
  const std::size_t all = part.size() + 1;
  const int status =
      call(in, std::span(files).first(all), std::span(lengths).first(all), std::span(images).first(all));
  if (status != nvjpeg_abi::success) return tl::unexpected(refused(status, "decoding a part of a batch"));
  const auto compared = launch_compare(in.reference, expected_, reference_pixel_bytes, differ_, stream_);
  if (compared == cudaSuccess) return {};
  return refuse(errc::device_unavailable, "comparing a JPEG's pixels, or an earlier operation: {}",
                cudaGetErrorString(compared));
}

bool jpeg_engine::has_kept_decoder() const noexcept {
  return *static_cast<const volatile std::uint32_t*>(differ_) == 0;
}

result<void> jpeg_engine::allocate() {
  auto expected = take_for_jpegs(reference_pixel_bytes);
  if (!expected) return tl::unexpected(std::move(expected.error()));
  expected_ = *expected;
  for (state& one : states_) {
    auto reference = take_for_jpegs(reference_pixel_bytes);
    if (!reference) return tl::unexpected(std::move(reference.error()));
    one.reference = *reference;
  }
  void* flag = nullptr;
  if (auto ok = fine(cudaHostAlloc(&flag, sizeof(std::uint32_t), cudaHostAllocMapped)); !ok) return ok;
  differ_ = static_cast<std::uint32_t*>(flag);
  *differ_ = 0;
  return {};
}

failure jpeg_engine::refused(int status, std::string_view doing) const {
  cudaGetLastError();
  if (status == nvjpeg_abi::allocator_failure) return {errc::device_out_of_memory, out_of_memory(), 0};
  return {errc::device_unavailable,
          fmt::format("nvJPEG {} ({}), {}: {}", library_->version_text(), library_->path(), doing,
                      nvjpeg_library::text_of(status)),
          0};
}

/// Starts nvJPEG; starts it again if it does not use the engines. Call while nothing else runs on the device.
result<void> jpeg_engine::try_starts() {
  for (int start = 1; start <= starts_max; ++start) {
    auto started = try_start();
    if (!started) return tl::unexpected(std::move(started.error()));
    if (*started) {
      log::info("gpu", "nvJPEG {} decodes JPEGs {}{}", library_->version_text(),
                has_engines_ ? "with the GPU's engines" : "in kernels: this GPU has no engine for it",
                start > 1 ? fmt::format(", after {} starts in which it used the CPU", start - 1) : "");
      return {};
    }
    stop();
  }
  return refuse(errc::device_unavailable,
                "nvJPEG {} ({}) was started {} times and decoded on the CPU each time, although the GPU has engines for "
                "JPEG; use another version, or set [image] decoder = \"cpu\"",
                library_->version_text(), library_->path(), starts_max);
}

/// Returns false if nvJPEG claims to use the engines, but does not.
result<bool> jpeg_engine::try_start() {
  nvjpeg_abi::device_allocator allocator{take, give_back};
  int status = library_->create(nvjpeg_abi::backend_hardware, &allocator, nullptr, 0, &handle_);
  has_engines_ = status == nvjpeg_abi::success;
  // GPUs without a JPEG engine decode in kernels. Any other error of nvJPEG is reported.
  if (status == nvjpeg_abi::architecture_mismatch || status == nvjpeg_abi::not_implemented)
    status = library_->create(nvjpeg_abi::backend_gpu_hybrid, &allocator, nullptr, 0, &handle_);
  cudaGetLastError();
  if (status != nvjpeg_abi::success) return tl::unexpected(refused(status, "starting"));
  for (state& one : states_) {
    status = library_->create_state(handle_, &one.of_nvjpeg);
    if (status != nvjpeg_abi::success) return tl::unexpected(refused(status, "preparing to decode"));
  }
  std::array<std::vector<std::uint8_t>, 2> pixels;
  for (std::size_t i = 0; i < states_.size(); ++i)
    if (auto ok = try_out(states_[i], pixels[i]); !ok) return tl::unexpected(std::move(ok.error()));
  if (pixels[0] != pixels[1]) return false;
  if (!has_engines_) return true;
  const auto others = reference_of_cpu();
  if (!others) return tl::unexpected(others.error());
  return pixels[0] != *others;
}

int jpeg_engine::call(state& in, std::span<const unsigned char* const> files,
                      std::span<const std::size_t> lengths, std::span<nvjpeg_abi::image> images) {
  const auto count = static_cast<int>(files.size());
  if (count != in.pictures) {
    const int status = library_->begin_batch(handle_, in.of_nvjpeg, count, 1, nvjpeg_abi::rgb_interleaved);
    if (status != nvjpeg_abi::success) return status;
    in.pictures = count;
  }
  const steady_time begun = std::chrono::steady_clock::now();
  const int status =
      library_->decode_batch(handle_, in.of_nvjpeg, files.data(), lengths.data(), images.data(), stream_);
  longest_call_ = std::max<nanoseconds>(longest_call_, std::chrono::steady_clock::now() - begun);
  return status;
}

/// Decodes the reference picture; stores its pixels in `expected_` and `pixels`.
result<void> jpeg_engine::try_out(state& in, std::vector<std::uint8_t>& pixels) {
  pixels.resize(reference_pixel_bytes);
  const unsigned char* const file = reference_.data();
  const std::size_t length = reference_.size();
  nvjpeg_abi::image image = image_of(in.reference, reference_pitch);
  if (const int status = call(in, {&file, 1}, {&length, 1}, {&image, 1}); status != nvjpeg_abi::success)
    return tl::unexpected(refused(status, "decoding a plain JPEG"));
  auto status =
      cudaMemcpyAsync(expected_, in.reference, reference_pixel_bytes, cudaMemcpyDeviceToDevice, stream_);
  if (status == cudaSuccess)
    status =
        cudaMemcpyAsync(pixels.data(), expected_, reference_pixel_bytes, cudaMemcpyDeviceToHost, stream_);
  if (status == cudaSuccess) status = cudaStreamSynchronize(stream_);
  if (status == cudaSuccess) return {};
  return refuse(errc::device_unavailable, "decoding a plain JPEG on the GPU, or an earlier operation: {}",
                cudaGetErrorString(status));
}

/// The reference picture's pixels from nvJPEG's CPU decoder, which it falls back to without the engines.
result<std::vector<std::uint8_t>> jpeg_engine::reference_of_cpu() {
  nvjpeg_abi::device_allocator allocator{take, give_back};
  nvjpegHandle* handle = nullptr;
  nvjpegJpegState* state = nullptr;
  std::vector<std::uint8_t> pixels(reference_pixel_bytes);
  int status = library_->create(nvjpeg_abi::backend_hybrid, &allocator, nullptr, 0, &handle);
  if (status == nvjpeg_abi::success) status = library_->create_state(handle, &state);
  if (status == nvjpeg_abi::success)
    status = library_->begin_batch(handle, state, 1, 1, nvjpeg_abi::rgb_interleaved);
  if (status == nvjpeg_abi::success) {
    const unsigned char* const file = reference_.data();
    const std::size_t length = reference_.size();
    nvjpeg_abi::image image = image_of(states_[0].reference, reference_pitch);
    status = library_->decode_batch(handle, state, &file, &length, &image, stream_);
  }
  auto done =
      cudaMemcpyAsync(pixels.data(), states_[0].reference, pixels.size(), cudaMemcpyDeviceToHost, stream_);
  if (const auto ended = cudaStreamSynchronize(stream_); done == cudaSuccess) done = ended;
  if (state != nullptr) library_->destroy_state(state);
  if (handle != nullptr) library_->destroy(handle);
  if (status != nvjpeg_abi::success)
    return tl::unexpected(refused(status, "decoding a plain JPEG on the CPU"));
  if (done != cudaSuccess)
    return refuse(errc::device_unavailable, "reading back a JPEG's pixels, or an earlier operation: {}",
                  cudaGetErrorString(done));
  return pixels;
}

void jpeg_engine::stop() noexcept {
  for (state& one : states_) {
    one.pictures = 0;
    if (one.of_nvjpeg != nullptr) library_->destroy_state(std::exchange(one.of_nvjpeg, nullptr));
  }
  if (handle_ != nullptr) library_->destroy(std::exchange(handle_, nullptr));
  cudaGetLastError();
}

}  // namespace penstock::device
