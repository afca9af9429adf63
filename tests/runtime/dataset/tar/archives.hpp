// Builds tar archives for tests, including some that no sane program writes.
#pragma once

#include "runtime/dataset/tar/frame_writer.hpp"
#include "runtime/dataset/tar/tar_parser.hpp"
#include "runtime/dataset/tar/tar_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock::testing {

/// Writes the checksum of the header that begins at `at`.
inline void sum_header(std::string& archive, std::size_t at) {
  archive.replace(at + 148, 8, "        ");
  unsigned sum = 0;
  for (std::size_t i = 0; i < 512; ++i) sum += static_cast<unsigned char>(archive[at + i]);
  archive.replace(at + 148, 7, fmt::format("{:06o}", sum) + std::string(1, '\0'));
}

/// A header of a different type, with contents and padding.
inline void append_typed(std::string& to, char type, std::string_view name, std::string_view contents = {}) {
  const std::size_t at = to.size();
  append_tar_member(to, name, contents);
  to[at + 156] = type;
  sum_header(to, at);
}

inline std::string pax_record(std::string_view key, std::string_view value) {
  std::size_t length = key.size() + value.size() + 3;
  while (fmt::format("{}", length).size() + key.size() + value.size() + 3 != length)
    length = fmt::format("{}", length).size() + key.size() + value.size() + 3;
  return fmt::format("{} {}={}\n", length, key, value);
}

using named_contents = std::vector<std::pair<std::string, std::string>>;

inline std::string archive_of(const named_contents& members) {
  std::string all;
  for (const auto& [name, contents] : members) append_tar_member(all, name, contents);
  append_tar_end(all);
  return all;
}

/// The archive as a seekable zstd file, in frames of this size, whatever they cut.
inline std::string seekable(std::string_view archive, std::size_t frame_size) {
  std::string all;
  auto frames = frame_writer::open(1);
  if (!frames) return frames.error().message;
  for (; !archive.empty(); archive.remove_prefix(std::min(frame_size, archive.size())))
    frames->append_frame(all, archive.substr(0, frame_size));
  frames->append_table(all);
  return all;
}

}  // namespace penstock::testing
