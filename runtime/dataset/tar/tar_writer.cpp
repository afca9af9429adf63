#include "runtime/dataset/tar/tar_writer.hpp"

#include "runtime/base/units.hpp"
#include "runtime/dataset/tar/tar_parser.hpp"

#include <fmt/format.h>

namespace penstock {
namespace {

constexpr std::size_t name_max = 100;
constexpr std::uint64_t octal_size_max = (std::uint64_t{1} << 33U) - 1;  // eleven octal digits

void append_block(std::string& to, std::string_view name, std::uint64_t size, char type) {
  std::string block(tar_block, '\0');
  const auto put = [&block](std::size_t at, std::string_view text) { block.replace(at, text.size(), text); };
  put(0, name.substr(0, name_max));
  put(100, std::string_view("0000644\0"
                            "0000000\0"
                            "0000000\0",
                            24));  // mode, owner, group
  if (size <= octal_size_max) {
    put(124, fmt::format("{:011o}", size));
  } else {
    block[124] = '\x80';
    for (int i = 0; i < 8; ++i) block[135 - i] = static_cast<char>(size >> (8 * i));
  }
  put(136, "00000000000");  // time
  put(148, "        ");
  block[156] = type;
  put(257, std::string_view("ustar\0"
                            "00",
                            8));
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  put(148, fmt::format("{:06o}", sum));
  block[154] = '\0';
  to += block;
}

bool needs_long_name(std::string_view name) noexcept {
  return name.size() > name_max;
}

}  // namespace

std::uint64_t tar_padding(std::uint64_t size) noexcept {
  return round_up(size, tar_block) - size;
}

void append_tar_header(std::string& to, std::string_view name, std::uint64_t size) {
  if (needs_long_name(name)) {
    append_block(to, "././@LongLink", name.size() + 1, 'L');
    to += name;
    to.append(1 + tar_padding(name.size() + 1), '\0');
  }
  append_block(to, name, size, '0');
}

void append_tar_member(std::string& to, std::string_view name, std::string_view contents) {
  append_tar_header(to, name, contents.size());
  to += contents;
  to.append(tar_padding(contents.size()), '\0');
}

std::uint64_t tar_member_bytes(std::string_view name, std::uint64_t size) noexcept {
  const std::uint64_t long_name =
      needs_long_name(name) ? tar_block + round_up(name.size() + 1, tar_block) : 0;
  return long_name + tar_block + round_up(size, tar_block);
}

void append_tar_end(std::string& to) {
  to.append(2 * tar_block, '\0');
}

}  // namespace penstock
