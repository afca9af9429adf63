#include "actors/gpu_owner/batch_body.hpp"
#include "runtime/base/result.hpp"
#include "runtime/base/stage_range.hpp"
#include "runtime/sink/digest.hpp"

#include <penstock/batch.hpp>

#include <algorithm>

namespace penstock {
namespace {

std::vector<std::uint64_t> with_rows(std::uint64_t rows, const std::vector<std::uint32_t>& shape) {
  std::vector<std::uint64_t> all{rows};
  all.insert(all.end(), shape.begin(), shape.end());
  return all;
}

}  // namespace

Batch::body::body(gpu_owner::ready_batch from, std::shared_ptr<const device::transfer_plan> how,
                  std::shared_ptr<batch_home> back)
    : ready(std::move(from)), plan(std::move(how)), home(std::move(back)) {
  const std::uint64_t rows = ready.samples.size();
  std::byte* buffer = nullptr;
  bool on_host = false;
  home->with_device([&](device::device& d) {
    buffer = d.address(ready.buffer);
    on_host = d.on_host();
  });
  for (std::size_t i = 0; i < plan->tensors.size(); ++i) {
    const device::device_tensor& t = plan->tensors[i];
    tensors.push_back(
        {t.name, t.type, with_rows(rows, plan->row_shape(i, ready.extents)), buffer + t.offset, on_host});
  }
  std::byte* at = ready.records.data();
  for (const tensor_place& place : plan->slot.tensors) {
    if (place.spec.role != tensor_role::record) continue;
    records.push_back({place.spec.name, place.spec.type, with_rows(rows, place.spec.shape), at, true});
    at += place.row_bytes * rows;
  }
}

Batch::body::~body() = default;

Batch::Batch() noexcept = default;
Batch::Batch(std::unique_ptr<body> held) noexcept : body_(std::move(held)) {}
Batch::Batch(Batch&& other) noexcept = default;

Batch& Batch::operator=(Batch&& other) noexcept {
  std::swap(body_, other.body_);
  return *this;
}

Batch::~Batch() {
  if (body_) body_->home->release_or_park(body_->ready.buffer);
}

Batch::body& Batch::held() const {
  if (!body_) throw error({errc::usage, "this batch was released, or was moved to another object", 0});
  body_->home->refuse_if_gone();
  return *body_;
}

std::uint64_t Batch::epoch() const {
  return held().ready.epoch;
}
std::uint64_t Batch::sequence() const {
  return held().ready.sequence;
}
std::size_t Batch::rows() const {
  return held().ready.samples.size();
}
std::span<const std::uint64_t> Batch::samples() const {
  return held().ready.samples;
}
std::span<const tensor_view> Batch::tensors() const {
  return held().tensors;
}
std::span<const tensor_view> Batch::records() const {
  return held().records;
}

namespace {

const tensor_view& find(std::span<const tensor_view> among, std::string_view name, std::string_view what) {
  const auto it = std::ranges::find(among, name, &tensor_view::name);
  if (it != among.end()) return *it;
  std::string names;
  for (const tensor_view& t : among) names += (names.empty() ? "" : ", ") + std::string(t.name);
  throw error({errc::usage,
               fmt::format("there is no {} '{}'; available: {}", what, name, names.empty() ? "none" : names),
               0});
}

}  // namespace

const tensor_view& Batch::tensor(std::string_view name) const {
  return find(held().tensors, name, "tensor");
}
tensor_view Batch::record(std::string_view name) const {
  return find(held().records, name, "record");
}

void Batch::wait(stream_handle stream) const {
  const stage_range range("wait");
  const body& b = held();
  value_or_throw(b.home->with_device([&](device::device& d) { return d.wait(b.ready.buffer, stream); }));
}

void Batch::release(stream_handle stream) {
  const stage_range range("release");
  release_after({&stream, 1});
}

void Batch::release_after(std::span<const stream_handle> streams) {
  if (streams.empty()) return release_unused();
  const body& b = held();
  b.home->release_after(b.ready.buffer, streams);  // if this throws, the batch is still held
  body_.reset();
}

void Batch::release() {
  release_unused();
}

void Batch::release_unused() {
  const stage_range range("release");
  const std::unique_ptr<body> b = (static_cast<void>(held()), std::move(body_));
  b->home->give_back(b->ready.buffer);
}

std::vector<std::byte> Batch::read_back(std::string_view name) const {
  const stage_range range("read back");
  const body& b = held();
  const tensor_view& t = tensor(name);
  const auto index = static_cast<std::size_t>(&t - b.tensors.data());
  std::vector<std::byte> bytes(t.bytes());
  value_or_throw(b.home->with_device(
      [&](device::device& d) { return d.read_back(b.ready.buffer, b.plan->tensors[index].offset, bytes); }));
  return bytes;
}

std::uint64_t Batch::digest() const {
  const body& b = held();
  std::vector<std::vector<std::byte>> copies;
  std::vector<tensor_view> on_host = b.tensors;
  for (tensor_view& t : on_host) {
    copies.push_back(read_back(t.name));
    t.data = copies.back().data();
    t.on_host = true;
  }
  return sink::batch_digest(b.ready.samples, on_host);
}

}  // namespace penstock
