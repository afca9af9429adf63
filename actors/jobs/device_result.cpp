#include "actors/jobs/device_result.hpp"

#include <fmt/core.h>

namespace penstock::jobs {

void lent_buffers::lend(std::uint64_t job, steady_time now) {
  const std::lock_guard hold(mutex_);
  if (has_room() || jobs_.empty()) no_room_.restart(now);
  jobs_.insert(job);
}

void lent_buffers::came_back(std::uint64_t job, steady_time now) {
  {
    const std::lock_guard hold(mutex_);
    jobs_.erase(jobs_.find(job));
    no_room_.restart(now);
  }
  tell_();
}

std::uint64_t lent_buffers::room() const {
  const std::lock_guard hold(mutex_);
  return buffers_ > jobs_.size() + 1 ? buffers_ - jobs_.size() - 1 : 0;
}

std::optional<std::string> lent_buffers::held_too_long(steady_time now) {
  constexpr std::size_t named = 8;
  const std::lock_guard hold(mutex_);
  if (has_room() || jobs_.empty() || !no_room_.is_over(now)) return std::nullopt;
  std::string names;
  std::size_t count = 0;
  for (const std::uint64_t job : jobs_) {
    if (count++ == named) break;
    names += (names.empty() ? "" : ", ") + std::to_string(job);
  }
  if (jobs_.size() > named) names += fmt::format(" and {} more", jobs_.size() - named);
  return fmt::format(
      "{} of {} device buffers hold results that the program has not released (of jobs {}): destroy or "
      "release() "
      "them, or raise "
      "[gpu] buffers",
      jobs_.size(), buffers_, names);
}

device_result::device_result(std::shared_ptr<lent_buffers> among, std::uint64_t job, std::uint32_t buffer,
                             std::uint64_t bytes)
    : among_(std::move(among)), job_(job), buffer_(buffer), bytes_(bytes) {
  among_->lend(job_);
}

device_result::~device_result() {
  if (among_->home().left()) return;
  if (!released_) among_->home().release_or_park(buffer_);
  among_->came_back(job_);
}

tensor_view device_result::tensor() const {
  tensor_view view{"result", dtype::uint8, {bytes_}, nullptr, false};
  among_->home().with_device([&](device::device& d) {
    view.data = d.address(buffer_);
    view.on_host = d.on_host();
  });
  return view;
}

std::span<const std::byte> device_result::bytes() const {
  const tensor_view view = tensor();
  if (!view.on_host)
    throw error({errc::usage, "the bytes of this Result are on the device: read_back() copies them", 0});
  return {static_cast<const std::byte*>(view.data), bytes_};
}

std::vector<std::byte> device_result::read_back() const {
  std::vector<std::byte> copy(bytes_);
  if (copy.empty()) return copy;
  value_or_throw(
      among_->home().with_device([&](device::device& d) { return d.read_back(buffer_, 0, copy); }));
  return copy;
}

void device_result::release(stream_handle stream) {
  among_->home().release_after(buffer_, {&stream, 1});
  released_ = true;
}

}  // namespace penstock::jobs
