#include "runtime/dataset/picture/jpeg_check.hpp"

#include "runtime/dataset/picture/jpeg_segments.hpp"

#include <algorithm>
#include <cstring>

namespace penstock {
namespace {

using octets = std::span<const std::uint8_t>;

// Marks that stand in place of a number of coefficients. They exceed the size of a block, so one comparison finds all special cases.
constexpr unsigned block_ends = 128;  // plus the number of coefficients before the end
constexpr unsigned not_looked_up = 192;
constexpr unsigned entry_shift = 6;  // the low six bits count bits, because a 64-bit shift uses only these
constexpr unsigned entry_bits = 63;

constexpr unsigned dc_bits_max = 11;
constexpr unsigned ac_bits_max = 10;

std::uint16_t code_entry(unsigned bits, unsigned step) noexcept {
  return static_cast<std::uint16_t>(step << entry_shift | bits);
}

/// At least 57 bits of the data, left-aligned.
std::uint64_t bits_from(const std::uint8_t* data, std::size_t bit) noexcept {
  std::uint64_t word = 0;
  std::memcpy(&word, data + bit / 8, sizeof word);
  return __builtin_bswap64(word) << (bit % 8);
}

// Zeros after the data, as many as the loop may read before it notices the end.
constexpr std::size_t padding = 64;

/// Whether this is an impossible number of coefficients for a block, or the table has no entry for the code.
bool is_odd(unsigned coefficients) noexcept {
  return (coefficients > 64 && coefficients < block_ends) || coefficients >= not_looked_up;
}

enum class colours : std::uint8_t { unsaid, ycc, other };

/// Whether an Adobe segment says YCbCr; `before` if it is not an Adobe segment.
colours of_adobe(octets segment, colours before) noexcept {
  constexpr std::size_t transform_at = 11;
  if (segment.size() <= transform_at || std::memcmp(segment.data(), "Adobe", 5) != 0) return before;
  return segment[transform_at] == 1 ? colours::ycc : colours::other;
}

}  // namespace

bool jpeg_checker::make(huffman_table& table, octets from, bool ac) noexcept {
  if (table.made_from_bytes == from.size() && std::equal(from.begin(), from.end(), table.made_from.begin()))
    return table.defined = true;
  table.made_from_bytes = 0;
  constexpr std::uint16_t none = not_looked_up << entry_shift;
  table.one.fill(none);
  table.values.fill(none);
  const octets counts = from.first(16);
  const octets values = from.subspan(16);
  std::uint32_t code = 0;
  std::size_t next = 0;
  for (unsigned length = 1; length <= 16; ++length) {
    table.offset[length] = static_cast<std::int32_t>(next) - static_cast<std::int32_t>(code);
    for (unsigned i = 0; i < counts[length - 1]; ++i, ++code, ++next) {
      const unsigned value = values[next];
      const unsigned number = ac ? value & 15U : value;
      const unsigned run = ac ? value >> 4U : 0;
      entry one = code_entry(length + number, run + 1);
      if (ac && value == 0) one = code_entry(length, block_ends);
      if (number > (ac ? ac_bits_max : dc_bits_max) || (ac && number == 0 && run != 0 && run != 15))
        one = none;
      table.values[next] = one;
      if (length > looked_up) continue;
      const unsigned free = looked_up - length;
      std::fill_n(table.one.begin() + (std::size_t{code} << free), std::size_t{1} << free, one);
    }
    if (code > (1U << length)) return false;
    table.limit[length] = code << (16 - length);
    code <<= 1U;
  }
  table.version = ++versions_;
  std::copy(from.begin(), from.end(), table.made_from.begin());
  table.made_from_bytes = from.size();
  return table.defined = true;
}

bool jpeg_checker::take_tables(octets segment) noexcept {
  while (segment.size() > 17) {
    const unsigned which = segment[0];
    std::size_t values = 0;
    unsigned room = 1;  // codes still available at this length; encoders may leave out the code of all ones, but must not use more
    for (unsigned i = 1; i <= 16; ++i) {
      values += segment[i];
      room = 2 * room;
      if (segment[i] > room) return false;
      room -= segment[i];
    }
    if ((which & 0xeeU) != 0 || values > 256 || segment.size() < 17 + values) return false;
    const bool ac = which >= 0x10;
    if (!make((ac ? ac_ : dc_)[which & 1U], segment.subspan(1, 16 + values), ac)) return false;
    segment = segment.subspan(17 + values);
  }
  return segment.empty();
}

bool jpeg_checker::take_quantisation(octets segment) noexcept {
  while (segment.size() >= 65) {
    if (segment[0] > 3) return false;  // 16 bits, or no such table
    const octets steps = segment.subspan(1, 64);
    if (std::find(steps.begin(), steps.end(), 0) != steps.end()) return false;
    quantised_[segment[0]] = true;
    segment = segment.subspan(65);
  }
  return segment.empty();
}

bool jpeg_checker::take_frame(octets segment) noexcept {
  if (width_ != 0 || segment.size() != 6 + 3 * 3 || segment[0] != 8 || segment[5] != 3) return false;
  height_ = two_bytes(segment, 1);
  width_ = two_bytes(segment, 3);
  for (std::size_t i = 0; i < 3; ++i) {
    const octets one = segment.subspan(6 + 3 * i, 3);
    components_[i] = {one[0], one[2], 0, 0};
    if (one[2] > 3 || (i > 0 && one[1] != 0x11)) return false;
  }
  luma_across_ = segment[7] >> 4U;
  luma_down_ = segment[7] & 15U;
  const bool usual = segment[7] == 0x11 || segment[7] == 0x21 || segment[7] == 0x22;
  return width_ != 0 && height_ != 0 && usual;
}

bool jpeg_checker::take_scan(octets segment) noexcept {
  if (width_ == 0 || segment.size() != 10 || segment[0] != 3) return false;
  for (std::size_t i = 0; i < 3; ++i) {
    component& c = components_[i];
    const unsigned tables = segment[2 + 2 * i];
    if (segment[1 + 2 * i] != c.id || (tables & 0xeeU) != 0) return false;
    c.dc = tables >> 4U;
    c.ac = tables & 1U;
    if (!dc_[c.dc].defined || !ac_[c.ac].defined || !quantised_[c.quantisation]) return false;
  }
  return segment[7] == 0 && segment[8] == 63 && segment[9] == 0;
}

/// Appends to `all` the following codes that are entirely within the bits that were looked up. The number after the
/// last code may reach beyond them.
jpeg_checker::entry jpeg_checker::join(const huffman_table& ac, entry all, std::size_t index) noexcept {
  for (int more = 0; more < 3; ++more) {
    const unsigned bits = all & entry_bits;
    const unsigned step = static_cast<unsigned>(all) >> entry_shift;
    if (bits >= looked_up || step >= block_ends) break;
    const std::size_t ahead = (index << bits) % ac.one.size();
    const entry next = ac.one[ahead];
    const unsigned next_step = static_cast<unsigned>(next) >> entry_shift;
    // The zeros shifted in must not be part of the code: any other bits there must give the same code.
    if (next_step >= not_looked_up || ac.one[ahead | ((std::size_t{1} << bits) - 1)] != next) break;
    if (step + next_step % block_ends > 63) break;
    all = code_entry(bits + (next & entry_bits), step + next_step);
  }
  return all;
}

const jpeg_checker::joint_tables& jpeg_checker::joint_of(const component& c) noexcept {
  joint_tables& made = joint_[c.dc][c.ac];
  const huffman_table& dc = dc_[c.dc];
  const huffman_table& ac = ac_[c.ac];
  if (made.dc_version == dc.version && made.ac_version == ac.version) return made;
  for (std::size_t index = 0; index < made.first.size(); ++index) {
    made.first[index] = join(ac, dc.one[index], index);
    made.rest[index] = join(ac, ac.one[index], index);
  }
  made.dc_version = dc.version;
  made.ac_version = ac.version;
  return made;
}

/// Looks up only the next code.
jpeg_checker::entry jpeg_checker::single(const huffman_table& table, std::uint64_t ahead) noexcept {
  const entry found = table.one[ahead >> (64 - looked_up)];
  if (static_cast<unsigned>(found) >> entry_shift != not_looked_up) return found;
  const auto code = static_cast<std::uint32_t>(ahead >> 48U);
  unsigned length = looked_up + 1;
  while (length <= 16 && code >= table.limit[length]) ++length;
  if (length > 16) return found;
  const std::int32_t value = static_cast<std::int32_t>(code >> (16 - length)) + table.offset[length];
  return value >= 0 && value < 256 ? table.values[static_cast<std::size_t>(value)] : found;
}

/// One loop over all codes. It has almost no branch that depends on them, because the ends of blocks are unpredictable.
bool jpeg_checker::read_interval(std::uint64_t units, std::size_t bytes) noexcept {
  const std::size_t luma_blocks = std::size_t{luma_across_} * luma_down_;
  const std::size_t blocks = luma_blocks + 2;  // per unit
  std::array<const entry*, 7> first{};
  std::array<const entry*, 7> rest{};
  std::array<const component*, 7> of{};
  for (std::size_t i = 0; i < blocks; ++i) {
    of[i] = &components_[i < luma_blocks ? 0 : i - luma_blocks + 1];
    const joint_tables& tables = joint_of(*of[i]);
    first[i] = tables.first.data();
    rest[i] = tables.rest.data();
  }
  first[blocks] = first[0];
  const std::uint8_t* const data = data_.data();
  const entry* table = first[0];
  std::size_t bit = 0;
  std::size_t block = 0;  // within the unit
  std::uint64_t left = units * blocks;
  unsigned coefficient = 0;
  const auto pass = [&](entry code, unsigned after) {
    bit += code & entry_bits;
    const bool ends = after >= 64;
    table = ends ? first[block + 1] : rest[block];
    coefficient = ends ? 0 : after;
    const std::size_t next = block + 1 == blocks ? 0 : block + 1;
    block = ends ? next : block;
    left -= ends ? 1 : 0;
  };
  while (left > 0) {
    if (bit > 8 * bytes) return false;
    std::uint64_t ahead = bits_from(data, bit);
    bool odd = false;
    // 57 bits are enough for three lookups: the first two consume at most 23 and 22 bits.
#pragma GCC unroll 3
    for (int i = 0; i < 3; ++i) {
      const entry code = table[ahead >> (64 - looked_up)];
      const unsigned after = coefficient + (static_cast<unsigned>(code) >> entry_shift);
      odd = is_odd(after);
      if (odd) break;
      ahead <<= code & entry_bits;
      pass(code, after);
      if (left == 0) break;
    }
    if (!odd) continue;
    // If a code is too long for the table, or the codes of one lookup go beyond the block, look up one code
    // at a time.
    const component& c = *of[block];
    const entry code = single(coefficient == 0 ? dc_[c.dc] : ac_[c.ac], bits_from(data, bit));
    const unsigned after = coefficient + (static_cast<unsigned>(code) >> entry_shift);
    if (is_odd(after)) return false;
    pass(code, after);
  }
  return bit <= 8 * bytes && 8 * bytes - bit < 8;
}

std::size_t jpeg_checker::unstuff(const std::uint8_t* from, const std::uint8_t* end) {
  const auto most = static_cast<std::size_t>(end - from);
  if (data_.size() < most + padding) data_.resize(most + padding);
  std::uint8_t* to = data_.data();
  while (from < end) {
    const void* const found = std::memchr(from, 0xff, static_cast<std::size_t>(end - from));
    const std::uint8_t* const stop = found != nullptr ? static_cast<const std::uint8_t*>(found) + 1 : end;
    to = std::copy(from, stop, to);
    from = found != nullptr ? stop + 1 : end;
  }
  std::fill_n(to, padding, std::uint8_t{0});
  return static_cast<std::size_t>(to - data_.data());
}

/// Returns the position of the end-of-image marker, or null for a fault.
const std::uint8_t* jpeg_checker::read_scan(const std::uint8_t* at, const std::uint8_t* end) {
  const std::uint32_t across = (width_ + 8 * luma_across_ - 1) / (8 * luma_across_);
  const std::uint32_t down = (height_ + 8 * luma_down_ - 1) / (8 * luma_down_);
  std::uint64_t left = std::uint64_t{across} * down;
  for (unsigned restarts = 0;; ++restarts) {
    const std::uint8_t* stop = at;
    while (true) {
      stop = static_cast<const std::uint8_t*>(std::memchr(stop, 0xff, static_cast<std::size_t>(end - stop)));
      if (stop == nullptr || end - stop < 2) return nullptr;
      if (stop[1] != 0) break;
      stop += 2;
    }
    const std::uint64_t now = restart_ != 0 ? std::min<std::uint64_t>(restart_, left) : left;
    left -= now;
    if (!read_interval(now, unstuff(at, stop))) return nullptr;
    while (end - stop > 2 && stop[1] == 0xff) ++stop;  // fill bytes
    if (left == 0) return stop[1] == 0xd9 ? stop : nullptr;
    if (stop[1] != 0xd0 + restarts % 8) return nullptr;
    at = stop + 2;
  }
}

std::optional<std::size_t> jpeg_checker::plain_bytes(std::span<const std::byte> given) {
  const octets file(reinterpret_cast<const std::uint8_t*>(given.data()), given.size());
  for (auto* tables : {&dc_, &ac_})
    for (huffman_table& one : *tables) one.defined = false;
  quantised_.fill(false);
  width_ = height_ = restart_ = 0;
  auto colour = colours::unsaid;
  bool jfif = false;
  for (auto next = first_jpeg_segment(file); next; next = jpeg_segment_at(file, next->end)) {
    const auto [marker, segment, begin, end] = *next;
    bool fine = true;
    switch (marker) {
      case 0xc0: fine = take_frame(segment); break;
      case 0xc4: fine = take_tables(segment); break;
      case 0xdb: fine = take_quantisation(segment); break;
      case 0xdd:
        fine = segment.size() == 2;
        if (fine) restart_ = two_bytes(segment, 0);
        break;
      case 0xe0: jfif = jfif || (segment.size() >= 5 && std::memcmp(segment.data(), "JFIF", 5) == 0); break;
      case 0xee: colour = of_adobe(segment, colour); break;
      case 0xda: {
        // Decide like libjpeg: by a JFIF segment, else by the Adobe segment, else by the usual ids.
        const bool usual_ids = components_[0].id == 1 && components_[1].id == 2 && components_[2].id == 3;
        if (colour == colours::other || (colour == colours::unsaid && !jfif && !usual_ids))
          return std::nullopt;
        if (!take_scan(segment)) return std::nullopt;
        const std::uint8_t* const stop = read_scan(file.data() + end, file.data() + file.size());
        if (stop == nullptr) return std::nullopt;
        return static_cast<std::size_t>(stop - file.data()) + 2;
      }
      default: fine = (marker >= 0xe1 && marker <= 0xef) || marker == 0xfe; break;
    }
    if (!fine) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace penstock
