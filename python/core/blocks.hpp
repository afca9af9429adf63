// Memory for arguments and results that Python holds as buffers. Released blocks are reused: the kernel takes
// several times as long to provide fresh pages as the copy into them takes. Used by the modules _core and
// _worker.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace penstock::python {

namespace nb = nanobind;

/// Thread-safe, and without the GIL. Never destroyed: a block may be released while the interpreter exits.
class block_cache {
 public:
  static block_cache& of_process() {
    static auto* const all = new block_cache();
    return *all;
  }

  std::shared_ptr<std::byte> take(std::size_t bytes) {
    block found = reuse(bytes);
    if (found.memory == nullptr) {
      found.bytes =
          bytes < worth_keeping ? std::max<std::size_t>(bytes, 1) : (bytes + unit - 1) / unit * unit;
      found.memory = static_cast<std::byte*>(::operator new(found.bytes, alignment));
    }
    return {found.memory, [this, found](std::byte*) { let_go(found); }};
  }

 private:
  struct block {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
  };
  static constexpr std::align_val_t alignment{64};
  static constexpr std::size_t unit = 64U << 10U;
  static constexpr std::size_t worth_keeping = 128U << 10U;  // malloc reuses smaller blocks well enough
  static constexpr std::size_t kept_max = 32U << 20U;        // bytes of all unused blocks

  /// An unused block of this size, at most a quarter larger.
  block reuse(std::size_t bytes) {
    if (bytes < worth_keeping) return {};
    const std::lock_guard hold(mutex_);
    const auto found = std::ranges::find_if(
        unused_, [bytes](const block& b) { return b.bytes >= bytes && b.bytes <= bytes + bytes / 4 + unit; });
    if (found == unused_.end()) return {};
    const block taken = *found;
    unused_.erase(found);
    kept_ -= taken.bytes;
    return taken;
  }

  void let_go(block b) noexcept {
    if (b.bytes >= worth_keeping && b.bytes <= kept_max) {
      const std::lock_guard hold(mutex_);
      try {
        unused_.push_back(b);
        kept_ += std::exchange(b, {}).bytes;
      } catch (...) {  // no memory for the list: freed below
        static_cast<void>(0);
      }
      // Free the oldest ones: sizes that are no longer requested.
      while (kept_ > kept_max) {
        kept_ -= unused_.front().bytes;
        ::operator delete(unused_.front().memory, alignment);
        unused_.erase(unused_.begin());
      }
    }
    if (b.memory != nullptr) ::operator delete(b.memory, alignment);
  }

  std::mutex mutex_;
  std::vector<block> unused_;
  std::size_t kept_ = 0;
};

/// A Python object with writable bytes, for memoryview and NumPy.
struct memory_block {
  std::shared_ptr<std::byte> memory;
  std::size_t bytes = 0;
};

inline int memory_block_buffer(PyObject* self, Py_buffer* view, int flags) {
  const auto* const block = nb::inst_ptr<memory_block>(self);
  return PyBuffer_FillInfo(view, self, block->memory.get(), static_cast<Py_ssize_t>(block->bytes), 0, flags);
}

inline void bind_memory_block(nb::module_& m) {
  static PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&memory_block_buffer)},
                                {0, nullptr}};
  nb::class_<memory_block>(m, "MemoryBlock", nb::type_slots(slots));
}

}  // namespace penstock::python
