#include "python/core/lease.hpp"

#include "python/core/dlpack_abi.hpp"

#include <penstock/error.hpp>

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <span>
#include <utility>

namespace penstock::python {
namespace {

constexpr std::align_val_t alignment{256};

std::uint64_t rounded_up(std::uint64_t bytes) {
  const auto unit = static_cast<std::uint64_t>(alignment);
  return (bytes + unit - 1) / unit * unit;
}

leased_tensor facts_of(const tensor_view& view) {
  leased_tensor t;
  t.name = view.name;
  t.type = view.type;
  for (const std::uint64_t n : view.shape) t.shape.push_back(static_cast<std::int64_t>(n));
  for (const std::uint64_t n : view.strides()) t.strides.push_back(static_cast<std::int64_t>(n));
  t.data = view.data;
  t.bytes = view.bytes();
  return t;
}

}  // namespace

// ---- memory -----------------------------------------------------------------------------------------------

block_pool::~block_pool() {
  for (std::byte* block : unused_) ::operator delete(block, alignment);
}

std::shared_ptr<std::byte> block_pool::take(std::size_t bytes) {
  std::byte* block = nullptr;
  {
    const std::lock_guard hold(mutex_);
    if (bytes == bytes_ && !unused_.empty()) {
      block = unused_.back();
      unused_.pop_back();
    }
  }
  if (block == nullptr)
    block = static_cast<std::byte*>(::operator new(std::max<std::size_t>(bytes, 1), alignment));
  return {block, [pool = shared_from_this(), bytes](std::byte* used) { pool->give_back(used, bytes); }};
}

void block_pool::give_back(std::byte* block, std::size_t bytes) noexcept {
  std::vector<std::byte*> dropped;
  {
    const std::lock_guard hold(mutex_);
    if (bytes != bytes_) {  // the last batch of an epoch is smaller
      bytes_ = bytes;
      dropped.swap(unused_);
      unused_.reserve(kept_);
    }
    if (unused_.size() < kept_) {
      unused_.push_back(block);
      block = nullptr;
    }
  }
  if (block != nullptr) ::operator delete(block, alignment);
  for (std::byte* old : dropped) ::operator delete(old, alignment);
}

// ---- batches ----------------------------------------------------------------------------------------------

void lease::note(const Batch& batch) {
  epoch = batch.epoch();
  sequence = batch.sequence();
  samples.assign(batch.samples().begin(), batch.samples().end());
}

void lease::copy(std::span<const tensor_view> from, std::vector<leased_tensor>& to, std::byte*& at) {
  for (const tensor_view& view : from) {
    leased_tensor t = facts_of(view);
    if (t.bytes > 0) std::memcpy(at, view.data, t.bytes);
    t.data = at;
    at += rounded_up(t.bytes);
    to.push_back(std::move(t));
  }
}

lease::lease(Batch batch, block_pool& memory) {
  note(batch);
  std::uint64_t bytes = 0;
  for (const tensor_view& t : batch.tensors()) bytes += rounded_up(t.bytes());
  for (const tensor_view& t : batch.records()) bytes += rounded_up(t.bytes());
  block_ = memory.take(bytes);
  std::byte* at = block_.get();
  copy(batch.tensors(), tensors, at);
  copy(batch.records(), records, at);
  batch.release_unused();
}

lease::lease(Batch batch, give_back back) {
  note(batch);
  std::uint64_t bytes = 0;
  for (const tensor_view& t : batch.records()) bytes += rounded_up(t.bytes());
  block_ = std::make_shared<block_pool>(0)->take(bytes);
  std::byte* at = block_.get();
  copy(batch.records(), records, at);
  for (const tensor_view& t : batch.tensors()) tensors.push_back(facts_of(t));
  const auto some = std::ranges::find_if(tensors, [](const leased_tensor& t) { return t.bytes > 0; });
  cuda_device = some == tensors.end() ? 0 : device_of(some->data);
  batch_ = std::move(batch);
  give_back_ = std::move(back);
}

lease::~lease() {
  try {
    release();
  } catch (...) {  // no memory for the list of returned buffers: the batch's destructor returns the buffer
    static_cast<void>(0);
  }
}

void lease::release() {
  give_back back;
  {
    const std::lock_guard hold(mutex_);
    back = std::exchange(give_back_, {});
    if (back) released_ = true;
  }
  if (back) back(std::move(batch_), std::move(streams_));
}

void lease::release_unless_viewed() {
  {
    const std::lock_guard hold(mutex_);
    if (views_ > 0) return;
    views_ = 1;  // no view can begin from here on, because the lease counts as released
    released_ = released_ || give_back_;
  }
  release();
}

void lease::begin_view() {
  const std::lock_guard hold(mutex_);
  if (released_) {
    throw error({errc::usage,
                 "the GPU took this batch's memory back when its session was closed: before closing, copy "
                 "what you keep (close() copies it if torch is loaded)",
                 0});
  }
  ++views_;
}

void lease::end_view() noexcept {
  const std::lock_guard hold(mutex_);
  --views_;
}

bool lease::is_viewed() const {
  const std::lock_guard hold(mutex_);
  return views_ > 0 && !released_;
}

void lease::record(stream_handle stream) {
  if (!give_back_) return;
  const std::lock_guard hold(mutex_);
  const bool known =
      std::ranges::any_of(streams_, [&](stream_handle s) { return s.native == stream.native; });
  if (!known) streams_.push_back(stream);
}

std::vector<std::byte> lease::read_back(std::size_t tensor) const {
  const leased_tensor& t = tensors.at(tensor);
  if (cuda_device >= 0) return batch_.read_back(t.name);
  const auto* begin = static_cast<const std::byte*>(t.data);
  return {begin, begin + t.bytes};
}

// ---- DLPack -----------------------------------------------------------------------------------------------

namespace {

dlpack::data_type type_of(dtype type) {
  using enum dlpack::type_code;
  const auto coded = [&](dlpack::type_code code) {
    return dlpack::data_type{static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(size_of(type) * 8),
                             1};
  };
  switch (type) {
    case dtype::uint8:
    case dtype::uint16:
    case dtype::uint32:
    case dtype::uint64: return coded(unsigned_integer);
    case dtype::int8:
    case dtype::int16:
    case dtype::int32:
    case dtype::int64: return coded(signed_integer);
    case dtype::bfloat16: return coded(bfloat);
    case dtype::float16:
    case dtype::float32:
    case dtype::float64: return coded(floating);
  }
  return coded(unsigned_integer);
}

/// The object held by a consumer: the DLPack struct, the arrays that it points to, and the lease.
template <class Managed>
struct holder {
  holder() = default;
  ~holder() {
    if (held) held->end_view();
  }
  holder(const holder&) = delete;
  holder& operator=(const holder&) = delete;

  Managed managed{};
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
  std::shared_ptr<lease> held;
};

template <class Managed>
Managed* make(std::shared_ptr<lease> held, const leased_tensor& t, int cuda_device) {
  auto h = std::make_unique<holder<Managed>>();
  h->shape = t.shape;
  h->strides = t.strides;
  if (held) held->begin_view();
  h->held = std::move(held);
  const auto where = cuda_device < 0 ? dlpack::device_type::cpu : dlpack::device_type::cuda;
  h->managed.tensor = {t.data,
                       {static_cast<std::int32_t>(where), std::max(cuda_device, 0)},
                       static_cast<std::int32_t>(h->shape.size()),
                       type_of(t.type),
                       h->shape.data(),
                       h->strides.data(),
                       0};
  h->managed.context = h.get();
  h->managed.deleter = [](Managed* m) { delete static_cast<holder<Managed>*>(m->context); };
  return &h.release()->managed;
}

}  // namespace

void* make_managed_tensor(std::shared_ptr<lease> held, const leased_tensor& tensor, int cuda_device) {
  return make<dlpack::managed_tensor>(std::move(held), tensor, cuda_device);
}

void* make_managed_tensor_versioned(std::shared_ptr<lease> held, const leased_tensor& tensor,
                                    int cuda_device) {
  auto* made = make<dlpack::managed_tensor_versioned>(std::move(held), tensor, cuda_device);
  made->version = {1, 0};
  made->flags = 0;
  return made;
}

void drop_managed_tensor(void* object) noexcept {
  auto* m = static_cast<dlpack::managed_tensor*>(object);
  m->deleter(m);
}

void drop_managed_tensor_versioned(void* object) noexcept {
  auto* m = static_cast<dlpack::managed_tensor_versioned*>(object);
  m->deleter(m);
}

int device_of(const void* memory) {
  // The session has loaded the driver; calling it directly needs neither CUDA headers nor the CUDA runtime.
  using pointer_attribute = int (*)(void*, int, unsigned long long);
  constexpr int device_ordinal = 9;  // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
  static const auto ask = [] {
    void* driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void* found = driver == nullptr ? nullptr : ::dlsym(driver, "cuPointerGetAttribute");
    return reinterpret_cast<pointer_attribute>(found);
  }();
  int device = -1;
  const int status =
      ask == nullptr ? -1 : ask(&device, device_ordinal, reinterpret_cast<unsigned long long>(memory));
  if (status != 0)
    throw error({errc::device_unavailable, "the driver does not report which GPU a batch is on", status});
  return device;
}

}  // namespace penstock::python
