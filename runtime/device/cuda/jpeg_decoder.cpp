#include "runtime/device/cuda/jpeg_decoder.hpp"

#include "runtime/base/log.hpp"
#include "runtime/base/patient_wait.hpp"
#include "runtime/base/stage_range.hpp"
#include "runtime/base/units.hpp"
#include "runtime/device/cuda/convert_batch.hpp"
#include "runtime/device/cuda/resize.hpp"

#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace penstock::device {
namespace {

// Room for the pictures of one part: 64 pictures of 640 x 683 pixels, or at least one of the largest size.
constexpr std::uint64_t lane_bytes = 80 * MiB;
static_assert(lane_bytes >= std::uint64_t{3} * encoded_pixels_max);
static_assert(resize_pictures_max <= jpeg_engine::pictures_max);

/// The header comes from a worker. No content may make us read or write outside our memory.
bool is_sane(const encoded_picture& p) {
  return p.bytes <= encoded_file_bytes_max && p.width >= encoded_side_min && p.height >= encoded_side_min &&
         p.width <= encoded_side_max && p.height <= encoded_side_max && std::uint64_t{p.width} * p.height <= encoded_pixels_max &&
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
  const auto fine = [](cudaError_t status) -> result<void> {
    if (status == cudaSuccess) return {};
    cudaGetLastError();
    return refuse(errc::device_unavailable, "preparing to decode JPEGs on the GPU, or an earlier operation: {}",
                  cudaGetErrorString(status));
  };
  if (auto ok = fine(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); !ok) return ok;
  for (lane& one : lanes_) {
    auto pixels = take_for_jpegs(lane_bytes);
    if (!pixels) return tl::unexpected(std::move(pixels.error()));
    one.pixels = *pixels;
    if (auto ok =
            fine(cudaEventCreateWithFlags(&one.resized, cudaEventDisableTiming | cudaEventBlockingSync));
        !ok)
      return ok;
  }
  auto engine = jpeg_engine::start(stream_);
  if (!engine) return tl::unexpected(std::move(engine.error()));
  engine_ = std::move(*engine);
  return {};
}

jpeg_decoder::~jpeg_decoder() {
  if (thread_.joinable()) {
    {
      const std::lock_guard hold(mutex_);
      closing_ = true;
    }
    moved_.notify_all();
    thread_.join();
    log::info("gpu", "nvJPEG decoded {} JPEGs, and the workers {} pictures; nvJPEG's longest call took {} ms",
              decoded_, left_to_workers_,
              std::chrono::duration_cast<std::chrono::milliseconds>(engine_->longest_call()).count());
  }
  engine_.reset();
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
  for (const lane& one : lanes_) {
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
  if (failed_ || engine_->has_kept_decoder()) return failed_;
  return trouble{
      cudaSuccess, errc::device_unavailable,
      fmt::format(
          "nvJPEG {} changed its decoder during the stream: a known JPEG no longer has the pixels that "
          "it had at the start; set [image] decoder = \"cpu\" if that happens again",
          engine_->version())};
}

bool jpeg_decoder::close(nanoseconds at_most) noexcept {
  std::unique_lock hold(mutex_);
  closing_ = true;
  waiting_.clear();
  moved_.notify_all();
  if (!is_done_within(moved_, hold, at_most, [this] { return ended_; })) return false;
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
                   fmt::format("a worker sent an invalid description of the JPEG in row {}: {} bytes, {} x {} pixels", row,
                               headers[row].bytes, headers[row].width, headers[row].height)};
  }
  for (cudaEvent_t event : what.released)
    if (auto no =
            cuda(cudaStreamWaitEvent(stream_, event, 0), "ordering a copy after the consumer, or an earlier operation"))
      return no;
  if (auto no = cuda(copy_rows(what, headers), "copying a batch, or an earlier operation")) return no;
  if (auto no = decode(what, headers)) return no;
  if (auto no = cuda(cudaEventRecord(what.copied, stream_), "recording an event, or an earlier operation")) return no;
  if (auto no = cuda(queue_conversions(plan_, what.staging, what.data, what.rows, {}, stream_),
                     "converting a batch, or an earlier operation"))
    return no;
  return cuda(cudaEventRecord(what.ready, stream_), "recording an event, or an earlier operation");
}

/// Copies all tensors but the encoded one, and the image's rows that workers have decoded.
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
  decoded_ += all;
  left_to_workers_ += what.rows - all;
  // Parts of about the same size, so that the last one is not tiny.
  const std::uint32_t parts = (all + resize_pictures_max - 1) / resize_pictures_max;
  const std::uint32_t most = parts > 0 ? (all + parts - 1) / parts : 0;
  std::vector<std::uint32_t> rows;
  std::uint64_t bytes = 0;
  for (std::uint32_t row = 0; row < what.rows; ++row) {
    if (headers[row].bytes == 0) continue;
    if (rows.size() == most || bytes + pixel_bytes(headers[row]) > lane_bytes) {
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
  std::array<jpeg_engine::picture, resize_pictures_max> part{};
  resize_batch resize;
  resize.to = reinterpret_cast<std::uint8_t*>(what.staging + step.to);
  resize.height = step.height;
  resize.width = step.width;
  resize.pictures = static_cast<std::uint32_t>(rows.size());
  const std::size_t in = std::exchange(next_lane_, (next_lane_ + 1) % lanes_.size());
  // This lane's last part was two parts ago, so the wait is usually short.
  if (const auto status = cudaEventSynchronize(lanes_[in].resized); status != cudaSuccess)
    return trouble{status, errc::device_unavailable, "waiting for the resizing of pictures, or an earlier operation"};
  std::uint8_t* to = lanes_[in].pixels;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const encoded_picture& p = headers[rows[i]];
    part[i] = {
        reinterpret_cast<const unsigned char*>(what.slot + step.from + step.row_bytes * rows[i] + sizeof p),
        p.bytes, to, std::size_t{p.width} * 3};
    resize.picture[i] = {to, p.width, p.height, p.box_top, p.box_left, p.box_height, p.box_width, rows[i]};
    to += pixel_bytes(p);
  }
  if (auto ok = engine_->decode(in, std::span(part).first(rows.size())); !ok)
    return trouble{
        cudaSuccess, ok.error().code,
        fmt::format("rows {} to {} of a batch: {}", rows.front(), rows.back(), ok.error().message)};
  auto status = launch_resize(resize, stream_);
  if (status == cudaSuccess) status = cudaEventRecord(lanes_[in].resized, stream_);
  if (status != cudaSuccess)
    return trouble{status, errc::device_unavailable, "resizing pictures, or an earlier operation"};
  return std::nullopt;
}

}  // namespace penstock::device
