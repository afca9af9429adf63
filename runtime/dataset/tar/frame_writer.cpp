#include <fmt/format.h>

#define XXH_INLINE_ALL
#include "runtime/base/check.hpp"
#include "runtime/dataset/tar/frame_writer.hpp"

#include <xxhash.h>

#include <utility>

namespace penstock {

result<frame_writer> frame_writer::open(int level) {
  auto codec = zstd_codec::open("compressing shards with zstd");
  if (!codec) return tl::unexpected(std::move(codec.error()));
  return frame_writer(std::move(*codec), level);
}

void frame_writer::append_frame(std::string& to, std::string_view contents) {
  constexpr std::size_t longest = 16 * MiB;
  while (!contents.empty()) {
    const std::string_view next = contents.substr(0, longest);
    contents.remove_prefix(next.size());
    const std::size_t begin = to.size();
    to.resize(begin + zstd_codec::bound(next.size()));
    const std::size_t made = zstd_.compress(std::as_bytes(std::span(next)), std::as_writable_bytes(std::span(to).subspan(begin)), level_);
    PENSTOCK_CHECK(made > 0, "zstd could not compress {} bytes", next.size());
    to.resize(begin + made);
    frames_.push_back({0, 0, static_cast<std::uint32_t>(made), static_cast<std::uint32_t>(next.size()),
                       static_cast<std::uint32_t>(XXH64(next.data(), next.size(), 0)), 1});
  }
}

}  // namespace penstock
