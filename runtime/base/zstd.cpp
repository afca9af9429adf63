#include "runtime/base/zstd.hpp"

#include "runtime/base/shared_library.hpp"

#include <fmt/format.h>

#include <new>
#include <utility>

namespace penstock {

result<zstd_codec> zstd_codec::open(std::string_view purpose) {
  constexpr const char* file = "libzstd.so.1";
  const shared_library library(file);
  if (!library)
    return refuse(errc::config, "{} needs {}: {} (the package libzstd1 provides it)", purpose, file, library.trouble());
  functions found;
  const bool all = library.find("ZSTD_createCCtx", found.make_compressor) &&
                   library.find("ZSTD_createDCtx", found.make_decompressor) &&
                   library.find("ZSTD_freeCCtx", found.free_compressor) &&
                   library.find("ZSTD_freeDCtx", found.free_decompressor) &&
                   library.find("ZSTD_compressCCtx", found.compress) &&
                   library.find("ZSTD_decompressDCtx", found.decompress) &&
                   library.find("ZSTD_isError", found.is_error) && library.find("ZSTD_getErrorName", found.error_name);
  if (!all) return refuse(errc::config, "{} needs functions that {} does not have", purpose, library.path());
  return zstd_codec(found);
}

zstd_codec::~zstd_codec() {
  if (compressor_ != nullptr) with_.free_compressor(compressor_);
  if (decompressor_ != nullptr) with_.free_decompressor(decompressor_);
}

zstd_codec::zstd_codec(zstd_codec&& other) noexcept
    : with_(other.with_),
      compressor_(std::exchange(other.compressor_, nullptr)),
      decompressor_(std::exchange(other.decompressor_, nullptr)) {}

zstd_codec& zstd_codec::operator=(zstd_codec&& other) noexcept {
  std::swap(with_, other.with_);
  std::swap(compressor_, other.compressor_);
  std::swap(decompressor_, other.decompressor_);
  return *this;
}

std::size_t zstd_codec::compress(std::span<const std::byte> bytes, std::span<std::byte> to, int level) {
  if (compressor_ == nullptr) compressor_ = with_.make_compressor();
  if (compressor_ == nullptr) return 0;
  const std::size_t made = with_.compress(compressor_, to.data(), to.size(), bytes.data(), bytes.size(), level);
  return with_.is_error(made) != 0 ? 0 : made;
}

result<std::size_t> zstd_codec::decompress(std::span<const std::byte> frame, std::span<std::byte> to) {
  if (decompressor_ == nullptr) decompressor_ = with_.make_decompressor();
  if (decompressor_ == nullptr) throw std::bad_alloc();
  const std::size_t made = with_.decompress(decompressor_, to.data(), to.size(), frame.data(), frame.size());
  if (with_.is_error(made) != 0) return refuse(errc::io, "{}", with_.error_name(made));
  return made;
}

}  // namespace penstock
