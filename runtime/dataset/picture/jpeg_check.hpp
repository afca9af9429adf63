// Decides whether a JPEG goes to the device's decoder. That decoder does not report corrupt files but returns some
// picture, so this check reads the entropy-coded data to its end. Used by the picture pipeline.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace penstock {

class jpeg_checker {
 public:
  /// For a plain file without a fault, the number of its bytes up to the end of its picture. Plain: baseline, 8 bits,
  /// YCbCr in three components, chroma sampled 4:4:4, 4:2:2 or 4:2:0, one scan, every code valid, and exactly as much
  /// data as the picture needs. Empty for any other file: the CPU then decodes it or reports what is wrong with it. A
  /// pure function of the bytes. Cannot detect changed bits that are valid codes for the same number of blocks.
  std::optional<std::size_t> plain_bytes(std::span<const std::byte> file);

 private:
  // The number of bits of one lookup. It finds all consecutive codes that are entirely within these bits.
  static constexpr unsigned looked_up = 12;

  // The low six bits: how many bits of the data a lookup consumes, including the numbers after the codes. The rest: how
  // many coefficients these codes stand for, or one of the marks in the source file.
  using entry = std::uint16_t;
  struct huffman_table {
    std::array<entry, 1U << looked_up> one;
    std::array<std::uint32_t, 17>
        limit;  // by length of a code: the first left-aligned 16-bit code that is longer
    std::array<std::int32_t, 17> offset;  // from a code to the index of its value
    std::array<entry, 256> values;
    // The definition that this table was made from. It is kept because most files have the same tables.
    std::array<std::uint8_t, 16 + 256> made_from;
    std::size_t made_from_bytes = 0;
    std::uint64_t version = 0;  // version of the table's contents; 0: none yet
    bool defined = false;
  };
  // Lookups of several codes at once: `first` at the beginning of a block, `rest` within it.
  struct joint_tables {
    std::array<entry, 1U << looked_up> first;
    std::array<entry, 1U << looked_up> rest;
    std::uint64_t dc_version = 0;
    std::uint64_t ac_version = 0;
  };
  struct component {
    unsigned id = 0, quantisation = 0, dc = 0, ac = 0;
  };

  bool take_tables(std::span<const std::uint8_t> segment) noexcept;
  bool make(huffman_table& table, std::span<const std::uint8_t> from, bool ac) noexcept;
  bool take_quantisation(std::span<const std::uint8_t> segment) noexcept;
  bool take_frame(std::span<const std::uint8_t> segment) noexcept;
  bool take_scan(std::span<const std::uint8_t> segment) noexcept;
  static entry join(const huffman_table& ac, entry all, std::size_t index) noexcept;
  const joint_tables& joint_of(const component& c) noexcept;
  static entry single(const huffman_table& table, std::uint64_t ahead) noexcept;
  bool read_interval(std::uint64_t units, std::size_t bytes) noexcept;
  std::size_t unstuff(const std::uint8_t* from, const std::uint8_t* end);
  const std::uint8_t* read_scan(const std::uint8_t* at, const std::uint8_t* end);

  std::array<huffman_table, 2> dc_{};
  std::array<huffman_table, 2> ac_{};
  std::array<std::array<joint_tables, 2>, 2> joint_{};
  std::uint64_t versions_ = 0;
  std::vector<std::uint8_t> data_;  // coded data of one interval, without stuffed zeros
  std::array<bool, 4> quantised_{};
  std::array<component, 3> components_{};
  unsigned luma_across_ = 0, luma_down_ = 0;
  std::uint32_t width_ = 0, height_ = 0, restart_ = 0;
};

}  // namespace penstock
