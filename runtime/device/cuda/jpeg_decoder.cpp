#include "runtime/device/cuda/jpeg_decoder.hpp"

#include "runtime/base/log.hpp"
#include "runtime/base/stage_range.hpp"
#include "runtime/base/units.hpp"
#include "runtime/device/cuda/convert_batch.hpp"
#include "runtime/device/cuda/resize.hpp"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace penstock::device {
namespace {

// Room for the pictures of one part: 64 of 640 x 683 pixels, or the largest single one several times.
constexpr std::uint64_t pool_bytes = 80 * MiB;
static_assert(pool_bytes >= std::uint64_t{3} * encoded_pixels_max);

// What the thread's last failed allocation for nvJPEG asked for.
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

std::string out_of_memory(std::uint64_t asked) {
  std::size_t free = 0;
  std::size_t total = 0;
  cudaMemGetInfo(&free, &total);
  return fmt::format(
      "allocating memory for decoding JPEGs on the GPU (asked {}, free {} of {}); lower [gpu] buffers or "
      "[sampler] "
      "batch_size, or set [image] decoder = \"cpu\"",
      bytes_for_people(asked), bytes_for_people(free), bytes_for_people(total));
}

/// A plain grey picture of 64 x 64 pixels, 4:2:0: every block is two codes of one bit.
std::vector<unsigned char> smallest_jpeg() {
  std::vector<unsigned char> file{0xff, 0xd8, 0xff, 0xdb, 0, 67, 0};
  file.insert(file.end(), 64, 1);
  for (const unsigned char table : {0x00, 0x10}) {
    file.insert(file.end(), {0xff, 0xc4, 0, 20, table, 1});
    file.insert(file.end(), 16, 0);
  }
  file.insert(file.end(), {0xff, 0xc0, 0, 17, 8, 0, 64, 0, 64, 3, 1, 0x22, 0, 2, 0x11, 0, 3, 0x11, 0});
  file.insert(file.end(), {0xff, 0xda, 0, 12, 3, 1, 0, 2, 0, 3, 0, 0, 63, 0});
  file.insert(file.end(), 24, 0);
  file.insert(file.end(), {0xff, 0xd9});
  return file;
}

/// A worker wrote the header: nothing in it may make us read or write outside of our memory.
bool is_sane(const encoded_picture& p) {
  return p.bytes <= encoded_file_bytes_max && p.width > 0 && p.height > 0 && p.width <= encoded_side_max &&
         p.height <= encoded_side_max && std::uint64_t{p.width} * p.height <= encoded_pixels_max &&
         p.box_width > 0 && p.box_height > 0 && p.box_width <= p.width && p.box_height <= p.height &&
         p.box_left <= p.width - p.box_width && p.box_top <= p.height - p.box_height;
}

std::uint64_t pixel_bytes(const encoded_picture& p) {
  return round_up(std::uint64_t{p.width} * p.height * 3, 256);
}

}  // namespace

result<std::unique_ptr<jpeg_decoder>> jpeg_decoder::open(const cuda_context& context,
                                                         const transfer_plan& plan) {
  std::unique_ptr<jpeg_decoder> made(new jpeg_decoder(context, plan));
  if (auto ok = made->prepare(); !ok) return tl::unexpected(std::move(ok.error()));
  made->thread_ = std::thread([decoder = made.get()] { decoder->run(); });
  return made;
}

result<void> jpeg_decoder::prepare() {
  auto library = nvjpeg_library::open();
  if (!library) return tl::unexpected(std::move(library.error()));
  library_ = std::move(*library);
  for (pool& one : pools_) {
    void* memory = nullptr;
    if (take(&memory, pool_bytes) != 0)
      return refuse(errc::device_out_of_memory, "{}", out_of_memory(pool_bytes));
    one.pixels = static_cast<std::uint8_t*>(memory);
    if (cudaEventCreateWithFlags(&one.resized, cudaEventDisableTiming | cudaEventBlockingSync) != cudaSuccess)
      return refuse(errc::device_unavailable, "creating an event for decoding JPEGs: {}",
                    cudaGetErrorString(cudaGetLastError()));
  }
  if (cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) != cudaSuccess)
    return refuse(errc::device_unavailable, "creating a stream for decoding JPEGs: {}",
                  cudaGetErrorString(cudaGetLastError()));
  nvjpeg_abi::device_allocator allocator{take, give_back};
  // GPUs without an engine for JPEG decode in kernels.
  int status = nvjpeg_abi::success;
  bool hardware = true;
  for (const int backend : {nvjpeg_abi::backend_hardware, nvjpeg_abi::backend_gpu_hybrid}) {
    hardware = backend == nvjpeg_abi::backend_hardware;
    status = library_->create(backend, &allocator, nullptr, 0, &handle_);
    if (status == nvjpeg_abi::success) status = library_->create_state(handle_, &state_);
    if (status == nvjpeg_abi::success) break;
    if (handle_ != nullptr) library_->destroy(std::exchange(handle_, nullptr));
  }
  cudaGetLastError();
  if (status == nvjpeg_abi::allocator_failure)
    return refuse(errc::device_out_of_memory, "{}", out_of_memory(asked_in_vain));
  if (status != nvjpeg_abi::success)
    return refuse(errc::device_unavailable, "starting nvJPEG {} ({}): {}", library_->version_text(),
                  library_->path(), nvjpeg_library::text_of(status));
  if (auto ok = try_out(); !ok) return ok;
  log::info("gpu", "nvJPEG {} decodes JPEGs, {}", library_->version_text(),
            hardware ? "with the GPU's engines" : "in kernels: this GPU has no engine for it");
  return {};
}

/// nvJPEG prepares its engines with the first picture: now, while nothing else happens on the device.
result<void> jpeg_decoder::try_out() {
  const auto file = smallest_jpeg();
  const unsigned char* const data = file.data();
  const std::size_t bytes = file.size();
  nvjpeg_abi::image image{};
  image.channel[0] = pools_[0].pixels;
  image.pitch[0] = 64 * 3;
  int status = library_->begin_batch(handle_, state_, 1, 1, nvjpeg_abi::rgb_interleaved);
  if (status == nvjpeg_abi::success)
    status = library_->decode_batch(handle_, state_, &data, &bytes, &image, stream_);
  batch_of_state_ = 1;
  if (status == nvjpeg_abi::success && cudaStreamSynchronize(stream_) == cudaSuccess) return {};
  cudaGetLastError();
  if (status == nvjpeg_abi::allocator_failure)
    return refuse(errc::device_out_of_memory, "{}", out_of_memory(asked_in_vain));
  return refuse(errc::device_unavailable, "nvJPEG {} ({}) cannot decode a plain JPEG: {}",
                library_->version_text(), library_->path(), nvjpeg_library::text_of(status));
}

jpeg_decoder::~jpeg_decoder() {
  if (thread_.joinable()) {
    {
      const std::lock_guard hold(mutex_);
      closing_ = true;
    }
    moved_.notify_all();
    thread_.join();
  }
  if (state_ != nullptr) library_->destroy_state(state_);
  if (handle_ != nullptr) library_->destroy(handle_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
  for (const pool& one : pools_) {
    if (one.resized != nullptr) cudaEventDestroy(one.resized);
    cudaFree(one.pixels);
  }
  cudaGetLastError();
}

std::uint64_t jpeg_decoder::push(order what) {
  std::uint64_t number = 0;
  {
    const std::lock_guard hold(mutex_);
    waiting_.push_back(std::move(what));
    number = ++pushed_;
  }
  moved_.notify_all();
  return number;
}

std::optional<jpeg_decoder::trouble> jpeg_decoder::failed() const {
  const std::lock_guard hold(mutex_);
  return failed_;
}

bool jpeg_decoder::close(nanoseconds at_most) noexcept {
  std::unique_lock hold(mutex_);
  closing_ = true;
  waiting_.clear();
  moved_.notify_all();
  if (!moved_.wait_for(hold, at_most, [this] { return ended_; })) return false;
  hold.unlock();
  return wait_for_stream(stream_, at_most) != cudaErrorNotReady;
}

jpeg_decoder::pause::pause(jpeg_decoder& of) : of_(of) {
  std::unique_lock hold(of_.mutex_);
  ++of_.pauses_;
  of_.moved_.wait(hold, [this] { return !of_.busy_; });
}

jpeg_decoder::pause::~pause() {
  {
    const std::lock_guard hold(of_.mutex_);
    --of_.pauses_;
  }
  of_.moved_.notify_all();
}

void jpeg_decoder::run() {
  ::pthread_setname_np(::pthread_self(), "penstock-jpeg");
  context_.enter_for_good();
  std::unique_lock hold(mutex_);
  while (true) {
    moved_.wait(hold, [this] { return closing_ || (!waiting_.empty() && pauses_ == 0); });
    if (closing_) break;
    const order next = std::move(waiting_.front());
    waiting_.pop_front();
    if (failed_) continue;
    busy_ = true;
    hold.unlock();
    auto trouble = carry_out(next);
    hold.lock();
    busy_ = false;
    moved_.notify_all();
    if (trouble) {
      failed_ = std::move(trouble);
    } else {
      begun_.fetch_add(1, std::memory_order_release);
    }
  }
  ended_ = true;
  moved_.notify_all();
}

std::optional<jpeg_decoder::trouble> jpeg_decoder::carry_out(const order& what) {
  const auto cuda = [](cudaError_t status, const char* doing) -> std::optional<trouble> {
    if (status == cudaSuccess) return std::nullopt;
    return trouble{status, errc::device_unavailable, doing};
  };
  const decode_step& step = *plan_.decode;
  std::vector<encoded_picture> headers(what.rows);
  for (std::uint32_t row = 0; row < what.rows; ++row) {
    std::memcpy(&headers[row], what.slot + step.from + step.row_bytes * row, sizeof(encoded_picture));
    if (headers[row].bytes == 0 || is_sane(headers[row])) continue;
    return trouble{cudaSuccess, errc::protocol,
                   fmt::format("a worker describes the JPEG in row {} wrongly: {} bytes, {} x {} pixels", row,
                               headers[row].bytes, headers[row].width, headers[row].height)};
  }
  for (cudaEvent_t event : what.released)
    if (auto no =
            cuda(cudaStreamWaitEvent(stream_, event, 0), "ordering a copy after the consumer, at or before"))
      return no;
  if (auto no = cuda(copy_rows(what, headers), "copying a batch, at or before")) return no;
  if (auto no = decode(what, headers)) return no;
  if (auto no = cuda(cudaEventRecord(what.copied, stream_), "recording an event, at or before")) return no;
  if (auto no = cuda(queue_conversions(plan_, what.staging, what.data, what.rows, {}, stream_),
                     "converting a batch, at or before"))
    return no;
  return cuda(cudaEventRecord(what.ready, stream_), "recording an event, at or before");
}

/// All tensors but the encoded one; of the image, the rows that workers have decoded.
cudaError_t jpeg_decoder::copy_rows(const order& what, const std::vector<encoded_picture>& headers) {
  const decode_step& step = *plan_.decode;
  const auto copy = [&](std::uint64_t from, std::uint64_t bytes) {
    return bytes == 0 ? cudaSuccess
                      : cudaMemcpyAsync(what.staging + from, what.slot + from, bytes, cudaMemcpyHostToDevice,
                                        stream_);
  };
  for (const tensor_place& place : plan_.slot.tensors) {
    if (place.offset == step.from || place.offset == step.to) continue;
    if (const auto status = copy(place.offset, place.row_bytes * what.rows); status != cudaSuccess)
      return status;
  }
  for (std::uint32_t row = 0; row < what.rows;) {
    std::uint32_t end = row;
    while (end < what.rows && headers[end].bytes == 0) ++end;
    if (const auto status = copy(step.to + step.to_row_bytes * row, step.to_row_bytes * (end - row));
        status != cudaSuccess)
      return status;
    row = end + 1;
  }
  return cudaSuccess;
}

std::optional<jpeg_decoder::trouble> jpeg_decoder::decode(const order& what,
                                                          const std::vector<encoded_picture>& headers) {
  const stage_range range("decode");
  const auto all = static_cast<std::uint32_t>(
      std::ranges::count_if(headers, [](const encoded_picture& p) { return p.bytes != 0; }));
  // Parts of one size: nvJPEG prepares itself anew for another one.
  const std::uint32_t parts = (all + resize_pictures_max - 1) / resize_pictures_max;
  const std::uint32_t most = parts > 0 ? (all + parts - 1) / parts : 0;
  std::vector<std::uint32_t> rows;
  std::uint64_t bytes = 0;
  for (std::uint32_t row = 0; row < what.rows; ++row) {
    if (headers[row].bytes == 0) continue;
    if (rows.size() == most || bytes + pixel_bytes(headers[row]) > pool_bytes) {
      if (auto no = decode_part(what, headers, rows)) return no;
      rows.clear();
      bytes = 0;
    }
    bytes += pixel_bytes(headers[row]);
    rows.push_back(row);
  }
  return rows.empty() ? std::nullopt : decode_part(what, headers, rows);
}

std::optional<jpeg_decoder::trouble> jpeg_decoder::decode_part(const order& what,
                                                               const std::vector<encoded_picture>& headers,
                                                               const std::vector<std::uint32_t>& rows) {
  const decode_step& step = *plan_.decode;
  std::array<const unsigned char*, resize_pictures_max> files{};
  std::array<std::size_t, resize_pictures_max> lengths{};
  std::array<nvjpeg_abi::image, resize_pictures_max> images{};
  resize_batch resize;
  resize.to = reinterpret_cast<std::uint8_t*>(what.staging + step.to);
  resize.height = step.height;
  resize.width = step.width;
  resize.pictures = static_cast<std::uint32_t>(rows.size());
  const pool& pixels = pools_[next_pool_];
  next_pool_ = (next_pool_ + 1) % pools_.size();
  // Two parts ago: usually over.
  if (const auto status = cudaEventSynchronize(pixels.resized); status != cudaSuccess)
    return trouble{status, errc::device_unavailable, "waiting for the resizing of pictures, at or before"};
  std::uint8_t* to = pixels.pixels;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const encoded_picture& p = headers[rows[i]];
    files[i] =
        reinterpret_cast<const unsigned char*>(what.slot + step.from + step.row_bytes * rows[i] + sizeof p);
    lengths[i] = p.bytes;
    images[i].channel[0] = to;
    images[i].pitch[0] = std::size_t{p.width} * 3;
    resize.picture[i] = {to, p.width, p.height, p.box_top, p.box_left, p.box_height, p.box_width, rows[i]};
    to += pixel_bytes(p);
  }
  const auto refused = [&](int status) {
    cudaGetLastError();
    if (status == nvjpeg_abi::allocator_failure)
      return trouble{cudaSuccess, errc::device_out_of_memory, out_of_memory(asked_in_vain)};
    return trouble{cudaSuccess, errc::device_unavailable,
                   fmt::format("nvJPEG {}, decoding rows {} to {} of a batch: {}", library_->version_text(),
                               rows.front(), rows.back(), nvjpeg_library::text_of(status))};
  };
  const auto count = static_cast<int>(rows.size());
  if (count != batch_of_state_) {
    if (const int status = library_->begin_batch(handle_, state_, count, 1, nvjpeg_abi::rgb_interleaved);
        status != nvjpeg_abi::success)
      return refused(status);
    batch_of_state_ = count;
  }
  if (const int status =
          library_->decode_batch(handle_, state_, files.data(), lengths.data(), images.data(), stream_);
      status != nvjpeg_abi::success)
    return refused(status);
  auto status = launch_resize(resize, stream_);
  if (status == cudaSuccess) status = cudaEventRecord(pixels.resized, stream_);
  if (status != cudaSuccess)
    return trouble{status, errc::device_unavailable, "resizing pictures, at or before"};
  return std::nullopt;
}

}  // namespace penstock::device
