// libzstd, opened at run time. Used for batches of loader hosts and for compressed shards.
#pragma once

#include "runtime/base/result.hpp"

#include <cstddef>
#include <span>
#include <string_view>

namespace penstock {

/// Compresses and decompresses frames of zstd. Move-only. Used by one thread.
class zstd_codec {
 public:
  /// Refuses (errc::config) if the library is missing; `purpose` begins the message ("compressing batches").
  static result<zstd_codec> open(std::string_view purpose);
  ~zstd_codec();
  zstd_codec(zstd_codec&& other) noexcept;
  zstd_codec& operator=(zstd_codec&& other) noexcept;

  /// The largest possible frame for this many bytes.
  [[nodiscard]] static std::size_t bound(std::size_t bytes) noexcept { return bytes + bytes / 256 + 1024; }
  /// Returns the number of bytes written to `to`; 0 if the frame does not fit.
  std::size_t compress(std::span<const std::byte> bytes, std::span<std::byte> to, int level);
  /// Returns the number of bytes written to `to`. Refuses (errc::io, with zstd's message) a damaged frame, and one
  /// that needs more room.
  result<std::size_t> decompress(std::span<const std::byte> frame, std::span<std::byte> to);

 private:
  // The types of zstd.h, unchanged since zstd 1.0.
  struct functions {
    void* (*make_compressor)() = nullptr;
    void* (*make_decompressor)() = nullptr;
    std::size_t (*free_compressor)(void*) = nullptr;
    std::size_t (*free_decompressor)(void*) = nullptr;
    std::size_t (*compress)(void*, void*, std::size_t, const void*, std::size_t, int) = nullptr;
    std::size_t (*decompress)(void*, void*, std::size_t, const void*, std::size_t) = nullptr;
    unsigned (*is_error)(std::size_t) = nullptr;
    const char* (*error_name)(std::size_t) = nullptr;
  };
  explicit zstd_codec(const functions& with) noexcept : with_(with) {}

  functions with_;
  void* compressor_ = nullptr;  // made when first needed, because most users need only one of the two
  void* decompressor_ = nullptr;
};

}  // namespace penstock
