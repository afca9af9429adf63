// Bytes that can be read at any offset: a file, or an object of a store. The only interface between datasets
// and the storage of their data.
#pragma once

#include "runtime/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace penstock {

struct byte_range {
  std::uint64_t at = 0;
  std::uint64_t bytes = 0;
  bool operator==(const byte_range&) const = default;
};

class readable {
 public:
  readable() = default;
  readable(const readable&) = delete;
  readable& operator=(const readable&) = delete;
  virtual ~readable() = default;

  [[nodiscard]] virtual std::uint64_t bytes() const noexcept = 0;
  /// Fills `into` from byte `at`. Refuses (errc::io, with errno if there is one) bytes that cannot be read, data that ends
  /// too early, and contents that have changed since they were opened. The message is meant to follow a name: "cannot
  /// be read: ...".
  virtual result<void> read(std::uint64_t at, std::span<std::byte> into) = 0;
  /// Says that these ranges will be read soon, each once, so that remote storage can start to fetch them. Does not wait.
  virtual void expect(std::vector<byte_range> ranges) { static_cast<void>(ranges); }
  /// Says that this range will not be read after all. Does nothing if it was not expected or has been read.
  virtual void drop(byte_range range) { static_cast<void>(range); }
};

}  // namespace penstock
