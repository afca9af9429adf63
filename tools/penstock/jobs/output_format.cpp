#include "tools/penstock/jobs/output_format.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <array>

namespace penstock::cli {
namespace {

using json = nlohmann::ordered_json;

constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string json_or_text(const json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// What a command wrote to one of its descriptors.
std::string bytes_of(const json& result, const std::string& name) {
  if (const auto exact = result.find(name + "_base64"); exact != result.end())
    return from_base64(exact->get_ref<const std::string&>());
  const auto text = result.find(name);
  return text != result.end() ? json_or_text(*text) : std::string();
}

/// Puts the tag and a tab before each line of the text. Ends the last line with a line feed as well.
std::string with_tag(const std::string& tag, std::string_view text) {
  std::string tagged;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    tagged.append(tag).append("\t").append(text.substr(0, end)).append("\n");
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return tagged;
}

}  // namespace

written_outcome written_as(output_format format, line_rule lines, std::string&& line) {
  if (format == output_format::json) return {std::move(line), {}, 0};
  written_outcome made;
  const json outcome = json::parse(line, nullptr, false);
  if (!outcome.is_object() || !outcome.contains("result") || outcome["result"].is_null()) return made;
  const json& result = outcome["result"];
  if (lines == line_rule::text) {
    made.out = bytes_of(result, "stdout");
    made.err = bytes_of(result, "stderr");
    const std::uint64_t written = result.value("stdout_bytes", std::uint64_t{0});
    made.missing = written > made.out.size() ? written - made.out.size() : 0;
  } else {
    made.out = json_or_text(result) + "\n";
  }
  if (format == output_format::raw) return made;
  const json input = outcome.value("input", json());
  const std::string tag =
      input.is_null() ? fmt::format("line {}", outcome.value("index", std::uint64_t{0}) + 1) : json_or_text(input);
  made.out = with_tag(tag, made.out);
  made.err = with_tag(tag, made.err);
  return made;
}

std::string base64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t group = 0;
    for (std::size_t i = 0; i < 3; ++i)
      group = group << 8U | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0U);
    for (std::size_t i = 0; i < 4; ++i)
      text += at + i <= bytes.size() ? digits[group >> (18 - 6 * i) & 63U] : '=';
  }
  return text;
}

std::string from_base64(std::string_view text) {
  static const auto values = [] {
    std::array<int, 256> all{};
    all.fill(-1);
    for (std::size_t i = 0; i < digits.size(); ++i)
      all.at(static_cast<unsigned char>(digits[i])) = static_cast<int>(i);
    return all;
  }();
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  std::uint32_t group = 0;
  unsigned bits = 0;
  for (const char c : text) {
    const int value = values.at(static_cast<unsigned char>(c));
    if (value < 0) break;
    group = group << 6U | static_cast<unsigned>(value);
    bits += 6;
    if (bits >= 8) bytes += static_cast<char>(group >> (bits -= 8) & 255U);
  }
  return bytes;
}

}  // namespace penstock::cli
