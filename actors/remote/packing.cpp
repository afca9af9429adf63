#include "actors/remote/packing.hpp"

#include "runtime/base/shared_library.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

namespace penstock::hosts {
namespace {

// As in lz4.h and zstd.h, whose functions have kept these types since lz4 1.7 and zstd 1.0.
constexpr int zstd_level = 1;

template <class Function>
result<void> need(const shared_library& library, const char* file, const char* name, Function*& function) {
  if (library.find(name, function)) return {};
  return refuse(errc::config, "compressing batches: {} has no function {}", file, name);
}

result<shared_library> open_library(const char* file, const char* package) {
  shared_library opened(file);
  if (opened) return opened;
  return refuse(errc::config, "compressing batches ([loader.hosts] compress) needs {}: {} (the package {} has it)", file,
                opened.trouble(), package);
}

class lz4_packer final : public packer {
 public:
  result<void> open() {
    constexpr const char* file = "liblz4.so.1";
    auto library = open_library(file, "liblz4-1");
    if (!library) return tl::unexpected(std::move(library.error()));
    if (auto ok = need(*library, file, "LZ4_compress_default", compress_); !ok) return ok;
    return need(*library, file, "LZ4_decompress_safe", decompress_);
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

  int (*compress_)(const char*, char*, int, int) = nullptr;
  int (*decompress_)(const char*, char*, int, int) = nullptr;
};

class zstd_packer final : public packer {
 public:
  ~zstd_packer() override {
    if (packs_ != nullptr) free_packs_(packs_);
    if (unpacks_ != nullptr) free_unpacks_(unpacks_);
  }
  zstd_packer() = default;
  zstd_packer(const zstd_packer&) = delete;
  zstd_packer& operator=(const zstd_packer&) = delete;

  result<void> open() {
    constexpr const char* file = "libzstd.so.1";
    auto library = open_library(file, "libzstd1");
    if (!library) return tl::unexpected(std::move(library.error()));
    if (auto ok = need(*library, file, "ZSTD_createCCtx", make_packs_); !ok) return ok;
    if (auto ok = need(*library, file, "ZSTD_createDCtx", make_unpacks_); !ok) return ok;
    if (auto ok = need(*library, file, "ZSTD_freeCCtx", free_packs_); !ok) return ok;
    if (auto ok = need(*library, file, "ZSTD_freeDCtx", free_unpacks_); !ok) return ok;
    if (auto ok = need(*library, file, "ZSTD_compressCCtx", compress_); !ok) return ok;
    return need(*library, file, "ZSTD_decompressDCtx", decompress_);
  }
  // Errors are numbers close to the largest one.
  std::size_t pack(std::span<const std::byte> bytes, std::span<std::byte> to) override {
    if (packs_ == nullptr) packs_ = make_packs_();
    if (packs_ == nullptr) return 0;
    const std::size_t made = compress_(packs_, to.data(), to.size(), bytes.data(), bytes.size(), zstd_level);
    return made <= to.size() ? made : 0;
  }
  bool unpack(std::span<const std::byte> packed, std::span<std::byte> to) override {
    if (unpacks_ == nullptr) unpacks_ = make_unpacks_();
    return unpacks_ != nullptr && decompress_(unpacks_, to.data(), to.size(), packed.data(), packed.size()) == to.size();
  }

 private:
  void* (*make_packs_)() = nullptr;
  void* (*make_unpacks_)() = nullptr;
  std::size_t (*free_packs_)(void*) = nullptr;
  std::size_t (*free_unpacks_)(void*) = nullptr;
  std::size_t (*compress_)(void*, void*, std::size_t, const void*, std::size_t, int) = nullptr;
  std::size_t (*decompress_)(void*, void*, std::size_t, const void*, std::size_t) = nullptr;
  void* packs_ = nullptr;    // made when first needed: each side needs one of the two
  void* unpacks_ = nullptr;
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
  return refuse(errc::protocol, "a part of {} bytes is said to be packed into {}", most, size);
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
  running_digest sent;
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
  running_digest received;
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
