// The layout of a pickle and its large buffers (the parts) in a job's argument and result: their number, the
// length of each (64 bits, little-endian), then the parts, each at a multiple of 64 bytes. Read by
// penstock._parts.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace penstock::python {

namespace nb = nanobind;

/// Holds Python buffers for its lifetime. Create and destroy it with the GIL; other calls do not need it.
class part_views {
 public:
  /// Throws nb::python_error for an object that is not a contiguous buffer.
  explicit part_views(const std::vector<nb::object>& parts) {
    views_.reserve(parts.size());
    for (const nb::object& part : parts) {
      Py_buffer view;
      if (PyObject_GetBuffer(part.ptr(), &view, PyBUF_C_CONTIGUOUS) != 0) {
        let_go();
        throw nb::python_error();
      }
      views_.push_back(view);
    }
  }
  ~part_views() { let_go(); }
  part_views(const part_views&) = delete;
  part_views& operator=(const part_views&) = delete;

  [[nodiscard]] std::size_t size() const {
    std::size_t bytes = rounded_up(8 * (1 + views_.size()));
    for (const Py_buffer& view : views_) bytes += rounded_up(static_cast<std::size_t>(view.len));
    return bytes;
  }
  /// Writes exactly size() bytes.
  void write(std::span<std::byte> to) const {
    std::byte* head = to.data();
    const auto put = [&](std::uint64_t number) {
      std::memcpy(head, &number, sizeof(number));
      head += sizeof(number);
    };
    std::byte* at = to.data() + rounded_up(8 * (1 + views_.size()));
    put(views_.size());
    for (const Py_buffer& view : views_) {
      const auto bytes = static_cast<std::size_t>(view.len);
      put(bytes);
      if (bytes > 0) std::memcpy(at, view.buf, bytes);
      at += rounded_up(bytes);
    }
  }

 private:
  static std::size_t rounded_up(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
  void let_go() {
    for (Py_buffer& view : views_) PyBuffer_Release(&view);
    views_.clear();
  }
  std::vector<Py_buffer> views_;
};

}  // namespace penstock::python
