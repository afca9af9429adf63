// Reads small files of /proc and /sys below a root, as text and numbers. Used by doctor and launch.
#pragma once

#include "runtime/base/file_text.hpp"

#include <filesystem>
#include <optional>
#include <sstream>
#include <string>

namespace penstock::machine {

inline std::string text_of(const std::filesystem::path& file) {
  std::string all = text_of_file(file);
  while (!all.empty() && (all.back() == '\n' || all.back() == ' ')) all.pop_back();
  return all;
}

template <class Number>
std::optional<Number> number_of(const std::filesystem::path& file) {
  std::istringstream text(text_of(file));
  Number value{};
  if (text >> value) return value;
  return std::nullopt;  // the file is missing, or says "max" or "Unknown"
}

/// The rest of the line that starts with this key.
inline std::string field_of(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key)) continue;
    const auto at = line.find_first_not_of(" \t", key.size());
    return at == std::string::npos ? "" : line.substr(at);
  }
  return {};
}

}  // namespace penstock::machine
