// Reads small files as a whole.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace penstock {

/// Empty if the file cannot be read.
[[nodiscard]] inline std::string text_of_file(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace penstock
