// The layout of a pickle and its large buffers (the parts) in a job's argument and result: their number, the
// length of each (64 bits, little-endian), then the parts, each at a multiple of 64 bytes. Read by
// penstock._parts.
#pragma once

#include <penstock/error.hpp>

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace penstock::python {

namespace nb = nanobind;

/// Holds Python buffers for its lifetime. Create and destroy it with the GIL; other calls do not need it.
class part_views {
 public:
  /// Throws nb::python_error for an object that is not a contiguous buffer.
  explicit part_views(const std::vector<nb::object>& parts) {
    parts_.reserve(parts.size());
    for (const nb::object& object : parts) {
      part view;
      if (PyObject_GetBuffer(object.ptr(), &view.held, PyBUF_C_CONTIGUOUS) != 0) {
        release();
        throw nb::python_error();
      }
      view.bytes = {static_cast<const std::byte*>(view.held.buf), static_cast<std::size_t>(view.held.len)};
      parts_.push_back(std::move(view));
    }
  }
  ~part_views() { release(); }
  part_views(const part_views&) = delete;
  part_views& operator=(const part_views&) = delete;

  [[nodiscard]] std::size_t size() const {
    std::size_t bytes = rounded_up(8 * (1 + parts_.size()));
    for (const part& each : parts_) bytes += rounded_up(each.bytes.size());
    return bytes;
  }
  /// Copies the parts that are in `memory`, which is about to be used for something else or unmapped.
  void copy_out_of(std::span<const std::byte> memory) {
    for (part& each : parts_) {
      if (!overlap(each.bytes, memory)) continue;
      each.copy.assign(each.bytes.begin(), each.bytes.end());
      each.bytes = each.copy;
    }
  }
  /// Writes exactly size() bytes. Throws error (errc::usage), and writes nothing, if a part overlaps `to`.
  void write(std::span<std::byte> to) const {
    for (std::size_t number = 0; number < parts_.size(); ++number) {
      if (!overlap(parts_[number].bytes, to)) continue;
      throw error({errc::usage,
                   "part " + std::to_string(number) + " of " + std::to_string(parts_.size()) + " (" +
                       std::to_string(parts_[number].bytes.size()) +
                       " bytes) overlaps the memory that the parts are copied to: copy it out first",
                   0});
    }
    std::byte* head = to.data();
    const auto put = [&](std::uint64_t number) {
      std::memcpy(head, &number, sizeof(number));
      head += sizeof(number);
    };
    std::byte* at = to.data() + rounded_up(8 * (1 + parts_.size()));
    put(parts_.size());
    for (const part& each : parts_) {
      put(each.bytes.size());
      if (!each.bytes.empty()) std::memcpy(at, each.bytes.data(), each.bytes.size());
      at += rounded_up(each.bytes.size());
    }
  }

 private:
  struct part {
    Py_buffer held{};
    std::span<const std::byte> bytes;
    std::vector<std::byte> copy;  // a copy, if the part was in the memory for the result
  };
  static std::size_t rounded_up(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
  static bool overlap(std::span<const std::byte> one, std::span<const std::byte> other) {
    const std::less<const std::byte*> before;
    return !one.empty() && !other.empty() && before(one.data(), other.data() + other.size()) &&
           before(other.data(), one.data() + one.size());
  }
  void release() {
    for (part& each : parts_) PyBuffer_Release(&each.held);
    parts_.clear();
  }
  std::vector<part> parts_;
};

}  // namespace penstock::python
