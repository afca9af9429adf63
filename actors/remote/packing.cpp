#include "actors/remote/packing.hpp"

#include "runtime/base/shared_library.hpp"
#include "runtime/base/zstd.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

namespace penstock::hosts {
namespace {

constexpr int zstd_level = 1;
constexpr std::string_view purpose = "compressing batches ([loader.hosts] compress)";

class lz4_packer final : public packer {
 public:
  result<void> open() {
    constexpr const char* file = "liblz4.so.1";
    const shared_library library(file);
    if (!library)
      return refuse(errc::config, "{} needs {}: {} (the package liblz4-1 provides it)", purpose, file, library.trouble());
    if (!library.find("LZ4_compress_default", compress_) || !library.find("LZ4_decompress_safe", decompress_))
      return refuse(errc::config, "{} needs functions that {} does not have", purpose, library.path());
    return {};
  }
  std::size_t pack(std::span<const std::byte> bytes, std::span<std::byte> to) override {
    const int made = compress_(text(bytes), reinterpret_cast<char*>(to.data()), static_cast<int>(bytes.size()),
                               static_cast<int>(to.size()));
    return made > 0 ? static_cast<std::size_t>(made) : 0;
  }
  bool unpack(std::span<const std::byte> packed, std::span<std::byte> to) override {
    return decompress_(text(packed), reinterpret_cast<char*>(to.data()), static_cast<int>(packed.size()),
                       static_cast<int>(to.size())) == static_cast<int>(to.size());
  }

 private:
  static const char* text(std::span<const std::byte> bytes) { return reinterpret_cast<const char*>(bytes.data()); }

  // As in lz4.h, whose functions have kept these types since lz4 1.7.
  int (*compress_)(const char*, char*, int, int) = nullptr;
  int (*decompress_)(const char*, char*, int, int) = nullptr;
};

class zstd_packer final : public packer {
 public:
  result<void> open() {
    auto codec = zstd_codec::open(purpose);
    if (!codec) return tl::unexpected(std::move(codec.error()));
    codec_.emplace(std::move(*codec));
    return {};
  }
  std::size_t pack(std::span<const std::byte> bytes, std::span<std::byte> to) override {
    return codec_->compress(bytes, to, zstd_level);
  }
  bool unpack(std::span<const std::byte> packed, std::span<std::byte> to) override {
    const auto made = codec_->decompress(packed, to);
    return made && *made == to.size();
  }

 private:
  std::optional<zstd_codec> codec_;
};

template <class Kind>
result<std::unique_ptr<packer>> opened() {
  auto made = std::make_unique<Kind>();
  if (auto ok = made->open(); !ok) return tl::unexpected(std::move(ok.error()));
  return made;
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Reads the size of a part. Refuses (errc::protocol) one above `most`.
result<std::size_t> size_of_part(host_stream& from, std::size_t most, nanoseconds silence_max) {
  std::uint32_t size = 0;
  if (auto ok = from.read_raw(std::as_writable_bytes(std::span(&size, 1)), silence_max); !ok)
    return tl::unexpected(std::move(ok.error()));
  if (size > 0 && size <= most) return size;
  return refuse(errc::protocol, "a part claims to pack {} bytes into {}", most, size);
}

}  // namespace

result<std::unique_ptr<packer>> packer::open(compress_rule how) {
  switch (how) {
    case compress_rule::none: break;
    case compress_rule::lz4: return opened<lz4_packer>();
    case compress_rule::zstd: return opened<zstd_packer>();
  }
  return std::unique_ptr<packer>();
}

result<void> send_packed(host_stream& to, packer& with, std::span<const std::byte> bytes, nanoseconds silence_max, bool digest) {
  std::vector<std::byte> part(sizeof(std::uint32_t) + packed_at_once);
  xxh3 sent;
  while (!bytes.empty()) {
    const std::span<const std::byte> next = bytes.first(std::min(bytes.size(), packed_at_once));
    bytes = bytes.subspan(next.size());
    if (digest) sent.add(as_text(next));
    auto size = static_cast<std::uint32_t>(with.pack(next, std::span(part).subspan(sizeof(std::uint32_t), next.size() - 1)));
    if (size == 0) {
      size = static_cast<std::uint32_t>(next.size());
      std::ranges::copy(next, part.begin() + sizeof size);
    }
    std::memcpy(part.data(), &size, sizeof size);
    if (auto ok = to.flush(silence_max, std::span(part).first(sizeof size + size)); !ok) return ok;
  }
  if (!digest) return to.flush(silence_max);
  const std::uint64_t value = sent.value();
  return to.flush(silence_max, std::as_bytes(std::span(&value, 1)));
}

result<std::string> receive_packed(host_stream& from, packer& with, std::span<std::byte> room, nanoseconds silence_max, bool digest) {
  std::vector<std::byte> part(std::min(room.size(), packed_at_once));
  xxh3 received;
  bool good = true;
  while (!room.empty()) {
    const std::span<std::byte> next = room.first(std::min(room.size(), packed_at_once));
    room = room.subspan(next.size());
    const auto size = size_of_part(from, next.size(), silence_max);
    if (!size) return tl::unexpected(size.error());
    const bool as_it_is = *size == next.size();
    const std::span<std::byte> arrives = as_it_is ? next : std::span(part).first(*size);
    if (auto ok = from.read_raw(arrives, silence_max); !ok) return tl::unexpected(std::move(ok.error()));
    if (!as_it_is) good = with.unpack(arrives, next) && good;
    if (digest) received.add(as_text(next));
  }
  auto damage = digest ? from.compare(received, silence_max) : result<std::string>(std::string());
  return damage && !good ? "they cannot be decompressed" : damage;
}

result<void> skip_packed(host_stream& from, std::uint64_t bytes, nanoseconds silence_max, bool digest) {
  while (bytes > 0) {
    const std::size_t next = std::min<std::uint64_t>(bytes, packed_at_once);
    bytes -= next;
    const auto size = size_of_part(from, next, silence_max);
    if (!size) return tl::unexpected(size.error());
    if (auto ok = from.skip_raw(*size, silence_max); !ok) return ok;
  }
  return from.skip_raw(0, silence_max, digest);
}

}  // namespace penstock::hosts
