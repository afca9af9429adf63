#include "runtime/device/reference_jpeg.hpp"

#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>

namespace penstock::device {
namespace {

// All codes have the same length, so a value's code is its index in the table.
constexpr unsigned dc_code_bits = 4;  // bits of a code for one of the categories 0 to 7
constexpr unsigned ac_code_bits =
    5;  // bits of a code for the end of a block, or for 0 to 3 zeros before a number of 1 to 4 bits
constexpr unsigned number_bits_max = 4;
constexpr int step = 8;  // quantisation step: a DC coefficient is then a block's mean minus 128

void append(std::vector<unsigned char>& to, std::initializer_list<unsigned> bytes) {
  for (const unsigned byte : bytes) to.push_back(static_cast<unsigned char>(byte));
}

class coded_data {
 public:
  explicit coded_data(std::vector<unsigned char>& file) : file_(file) {}

  void block(int& mean) {
    const int next = static_cast<int>(draw(121)) - 60;
    number(next - mean, dc_code_bits, [](unsigned bits) { return bits; });
    mean = next;
    for (unsigned at = 1; at < 24; ++at) {
      const unsigned zeros = draw(4);
      const int bits = static_cast<int>(1 + draw(number_bits_max));
      const int size = 1 << (bits - 1) | static_cast<int>(draw(1U << (bits - 1)));
      at += zeros;
      number(draw(2) != 0 ? size : -size, ac_code_bits,
             [zeros](unsigned length) { return 1 + number_bits_max * zeros + length - 1; });
    }
    put(0, ac_code_bits);
  }

  void end() {
    while (filled_ % 8 != 0) put(1, 1);
  }

 private:
  template <class Code>
  void number(int value, unsigned code_bits, Code code_of) {
    const auto length = static_cast<unsigned>(std::bit_width(static_cast<unsigned>(std::abs(value))));
    put(code_of(length), code_bits);
    put(static_cast<unsigned>(value < 0 ? value + (1 << length) - 1 : value), length);
  }

  void put(unsigned value, unsigned bits) {
    while (bits-- > 0) {
      byte_ = byte_ << 1U | (value >> bits & 1U);
      if (++filled_ % 8 != 0) continue;
      append(file_, {byte_ & 0xffU});
      if ((byte_ & 0xffU) == 0xff) append(file_, {0});
    }
  }

  /// MINSTD, implemented here so that no library can change these bytes.
  unsigned draw(unsigned below) {
    random_ = random_ * 48271 % 2147483647;
    return static_cast<unsigned>(random_ >> 8U) % below;
  }

  std::vector<unsigned char>& file_;
  std::uint64_t random_ = 34;
  unsigned byte_ = 0;
  unsigned filled_ = 0;  // bits
};

void append_table(std::vector<unsigned char>& file, unsigned which, unsigned code_bits,
                  const std::vector<unsigned>& values) {
  append(file, {0xff, 0xc4, 0, static_cast<unsigned>(19 + values.size()), which});
  for (unsigned bits = 1; bits <= 16; ++bits)
    append(file, {bits == code_bits ? static_cast<unsigned>(values.size()) : 0U});
  for (const unsigned value : values) append(file, {value});
}

}  // namespace

std::vector<unsigned char> reference_jpeg() {
  std::vector<unsigned char> file;
  append(file, {0xff, 0xd8, 0xff, 0xe0, 0, 16, 'J', 'F', 'I', 'F', 0, 1, 1, 0, 0, 1, 0, 1, 0, 0});
  append(file, {0xff, 0xdb, 0, 67, 0});
  file.insert(file.end(), 64, step);
  append(file,
         {0xff, 0xc0, 0, 17, 8, 0, reference_side, 0, reference_side, 3, 1, 0x22, 0, 2, 0x11, 0, 3, 0x11, 0});
  std::vector<unsigned> ac{0};
  for (unsigned zeros = 0; zeros < 4; ++zeros)
    for (unsigned bits = 1; bits <= number_bits_max; ++bits) ac.push_back(zeros << 4U | bits);
  append_table(file, 0x00, dc_code_bits, {0, 1, 2, 3, 4, 5, 6, 7});
  append_table(file, 0x10, ac_code_bits, ac);
  append(file, {0xff, 0xda, 0, 12, 3, 1, 0, 2, 0, 3, 0, 0, 63, 0});
  coded_data data(file);
  std::array<int, 3> means{};
  for (unsigned unit = 0; unit < (reference_side / 16) * (reference_side / 16); ++unit)
    for (const std::size_t component : {0U, 0U, 0U, 0U, 1U, 2U}) data.block(means[component]);
  data.end();
  append(file, {0xff, 0xd9});
  return file;
}

}  // namespace penstock::device
