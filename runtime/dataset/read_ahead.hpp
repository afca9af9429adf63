// Reads a range of a file in pieces, in order. For an object, the next pieces are requested in advance. Used by the
// session to read whole files.
#pragma once

#include "runtime/storage/readable.hpp"

#include <algorithm>
#include <cstdint>
#include <span>

namespace penstock {

class read_ahead {
 public:
  /// All calls to read() but the last must ask for `piece` bytes. The file must outlive this object.
  read_ahead(readable& file, byte_range range, std::uint64_t piece)
      : file_(file), end_(range.at + range.bytes), piece_(piece), expected_(range.at) {}

  result<void> read(std::uint64_t at, std::span<std::byte> into) {
    constexpr std::uint64_t pieces_ahead = 8;
    for (; expected_ < std::min(end_, at + pieces_ahead * piece_); expected_ += piece_)
      file_.expect({{expected_, std::min(piece_, end_ - expected_)}});
    return file_.read(at, into);
  }

 private:
  readable& file_;
  std::uint64_t end_;
  std::uint64_t piece_;
  std::uint64_t expected_;
};

}  // namespace penstock
