#include "runtime/dataset/picture/restart_cut.hpp"

#include "runtime/dataset/picture/jpeg_segments.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace penstock {
namespace {

using octets = std::span<const std::uint8_t>;

constexpr std::array<std::uint8_t, 2> end_of_image{0xff, 0xd9};

/// The intervals that a window needs along one side.
struct side_cut {
  std::uint32_t first = 0;
  std::uint32_t end = 0;  ///< one past the last interval
  std::uint32_t all = 0;
  std::uint32_t length = 0;   ///< size of the part, in pixels as stored
  std::uint32_t skipped = 0;  ///< pixels of the picture before the part, after scaling
};

struct side_request {
  std::uint32_t stored = 0;
  std::uint32_t begin = 0;  ///< where the window begins, after scaling
  std::uint32_t end = 0;
  std::uint32_t interval = 0;  ///< length of an interval, in pixels as stored
  std::uint32_t samples = 1;   ///< the largest sampling factor
  std::uint32_t shortest = 0;  ///< minimum length of the part, after scaling
};

side_cut cut_side(const side_request& side, unsigned denominator) noexcept {
  // Upsampling mixes neighbouring chroma samples, and treats the edge of the part as the edge of a picture.
  const std::uint32_t context = side.samples > 1 ? 2 * side.samples : 0;
  const std::uint32_t full = scaled_side(side.stored, denominator);
  std::uint32_t begin = side.begin - std::min(side.begin, context);
  const std::uint32_t end = std::min(full, std::max(side.end + context, begin + side.shortest));
  begin = std::min(begin, end - std::min(end, side.shortest));
  side_cut cut;
  const std::uint32_t scaled = side.interval / denominator;
  cut.all = (side.stored + side.interval - 1) / side.interval;
  cut.first = begin / scaled;
  cut.end = std::min(cut.all, (end + scaled - 1) / scaled);
  cut.length = std::min(side.stored, cut.end * side.interval) - cut.first * side.interval;
  cut.skipped = cut.first * scaled;
  return cut;
}

/// Writes to memory. The caller provides enough of it.
class writer {
 public:
  explicit writer(std::uint8_t* begin) noexcept : begin_(begin), at_(begin) {}

  void add(octets bytes) noexcept {
    std::memcpy(at_, bytes.data(), bytes.size());
    at_ += bytes.size();
  }
  void add_marker(unsigned code) noexcept {
    add(std::array{std::uint8_t{0xff}, static_cast<std::uint8_t>(code)});
  }
  void add_two_bytes(std::uint32_t value) noexcept {
    add(std::array{static_cast<std::uint8_t>(value >> 8U), static_cast<std::uint8_t>(value)});
  }
  [[nodiscard]] std::size_t size() const noexcept { return static_cast<std::size_t>(at_ - begin_); }

 private:
  std::uint8_t* begin_;
  std::uint8_t* at_;
};

/// Adds the segments that determine the pixels, with the size of the part.
void add_header(writer& to, octets file, const jpeg_segments& header, extent size,
                std::uint32_t interval) noexcept {
  to.add_marker(0xd8);
  for (const jpeg_segments::range& one : header.decoding()) {
    const octets segment = file.subspan(one.begin, one.end - one.begin);
    if (one.begin != header.frame_at) {
      to.add(segment);
      continue;
    }
    constexpr std::size_t before_size = 5;  // marker, length, bits
    to.add(segment.first(before_size));
    to.add_two_bytes(size.height);
    to.add_two_bytes(size.width);
    to.add(segment.subspan(before_size + 4));
  }
  to.add_marker(0xdd);
  to.add_two_bytes(4);
  to.add_two_bytes(interval);
  to.add(file.subspan(header.scan.begin, header.scan.end - header.scan.begin));
}

}  // namespace

/// Finds the first `needed` of `all` intervals, beginning at `at`.
bool restart_cutter::find_intervals(octets file, std::size_t at, std::size_t needed, std::size_t all) {
  intervals_.clear();
  const std::uint8_t* const end = file.data() + file.size();
  const std::uint8_t* stop = file.data() + at;
  const std::uint8_t* begin = stop;
  while (intervals_.size() < needed) {
    stop = static_cast<const std::uint8_t*>(std::memchr(stop, 0xff, static_cast<std::size_t>(end - stop)));
    if (stop == nullptr || end - stop < 2) return false;
    if (stop[1] == 0) {
      stop += 2;
      continue;
    }
    const auto number = intervals_.size();
    intervals_.push_back(
        {static_cast<std::size_t>(begin - file.data()), static_cast<std::size_t>(stop - file.data())});
    while (end - stop > 2 && stop[1] == 0xff) ++stop;  // fill bytes
    if (stop[1] != (number + 1 == all ? end_of_image[1] : 0xd0 + number % 8)) return false;
    begin = stop += 2;
  }
  if (needed == all) return true;
  // Search from the end, where intact files have it.
  const octets rest(stop, end);
  return std::find_end(rest.begin(), rest.end(), end_of_image.begin(), end_of_image.end()) != rest.end();
}

std::optional<restart_cutter::part> restart_cutter::cut(std::span<const std::byte> given,
                                                        const jpeg_request& request) {
  const octets file(reinterpret_cast<const std::uint8_t*>(given.data()), given.size());
  const auto header = jpeg_segments::read(file);
  if (!header || header->restart_interval == 0 || header->size != request.stored) return std::nullopt;
  const std::uint32_t mcus = header->restart_interval;
  const std::uint32_t mcu_width = 8 * header->across;
  const std::uint32_t mcu_height = 8 * header->down;
  const std::uint32_t row = (request.stored.width + mcu_width - 1) / mcu_width;
  if (row % mcus != 0 && mcus % row != 0) return std::nullopt;
  const pixel_box& window = request.window;
  const unsigned d = request.denominator;
  // Keep rows longer than two samples, because libjpeg decodes shorter ones with other routines.
  const side_cut x = cut_side({request.stored.width, window.left, window.left + window.width,
                               std::min(mcus, row) * mcu_width, header->across, 16 * header->across},
                              d);
  const side_cut y = cut_side({request.stored.height, window.top, window.top + window.height,
                               std::max(mcus / row, 1U) * mcu_height, header->down, 0},
                              d);
  // Cutting saves nothing if no rows above the window and no columns can be left out: the decoder itself
  // skips the rows below.
  if (y.first == 0 && x.end - x.first == x.all) return std::nullopt;
  const std::size_t needed = (std::size_t{y.end} - 1) * x.all + x.end;
  if (!find_intervals(file, header->scan.end, needed, std::size_t{y.all} * x.all)) return std::nullopt;

  std::uint8_t* const memory = file_.take_u8(file.size() + 64);
  writer to(memory);
  add_header(to, file, *header, {x.length, y.length}, mcus);
  unsigned number = 0;
  for (std::uint32_t down = y.first; down < y.end; ++down) {
    for (std::uint32_t across = x.first; across < x.end; ++across) {
      if (number > 0) to.add_marker(0xd0 + (number - 1) % 8);
      ++number;
      const interval& one = intervals_[std::size_t{down} * x.all + across];
      to.add(file.subspan(one.begin, one.end - one.begin));
    }
  }
  to.add(end_of_image);
  part made{{reinterpret_cast<const std::byte*>(memory), to.size()}, request};
  made.request.stored = {x.length, y.length};
  made.request.window.left -= x.skipped;
  made.request.window.top -= y.skipped;
  return made;
}

}  // namespace penstock
