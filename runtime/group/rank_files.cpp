#include "runtime/group/rank_files.hpp"

#include "runtime/base/number.hpp"
#include "runtime/base/sink_choice.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

namespace penstock::group {
namespace {

bool is_letter_or_digit(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0;
}

bool ends_in(std::string_view name, std::uint32_t rank) {
  const auto behind =
      std::find_if(name.rbegin(), name.rend(), [](unsigned char c) { return std::isdigit(c) == 0; });
  const std::string_view digits = name.substr(static_cast<std::size_t>(name.rend() - behind));
  if (whole_number<std::uint32_t>(digits) != rank) return false;
  const std::string_view before = name.substr(0, name.size() - digits.size());
  return before.empty() || !is_letter_or_digit(before.back()) || before.ends_with("rank");
}

}  // namespace

std::string with_rank(std::string_view name, std::uint32_t rank) {
  return fmt::format("{}-rank{}", name, rank);
}

bool names_rank(std::string_view path, std::uint32_t rank) {
  const std::filesystem::path last = std::filesystem::path(path).filename();
  return ends_in(last.native(), rank) || ends_in(last.stem().native(), rank);
}

std::optional<std::uint32_t> other_rank_named(std::string_view path, std::uint32_t rank, std::uint32_t world_size) {
  if (names_rank(path, rank)) return std::nullopt;
  for (std::uint32_t other = 0; other < world_size; ++other) {
    if (names_rank(path, other)) return other;
  }
  return std::nullopt;
}

std::string file_of_rank(const std::string& path, std::uint32_t rank) {
  return path.empty() || names_rank(path, rank) ? path : with_rank(path, rank);
}

std::string folder_of_rank(const std::string& path, std::uint32_t rank) {
  return path.empty() || names_rank(path, rank) ? path : fmt::format("{}/rank{}", path, rank);
}

std::string sink_of_rank(const std::string& sink, std::uint32_t rank) {
  const auto [kind, path] = sink_choice_in(sink);
  return kind == sink_kind::journal ? "journal:" + file_of_rank(path, rank) : sink;
}

std::string address_of_rank(const std::string& listen, std::uint32_t rank) {
  const std::size_t colon = listen.rfind(':');
  if (colon == std::string::npos) return listen;
  const auto port = whole_number<std::uint32_t>(std::string_view(listen).substr(colon + 1));
  if (port.value_or(0) == 0) return listen;
  return fmt::format("{}:{}", listen.substr(0, colon), *port + rank);
}

}  // namespace penstock::group
