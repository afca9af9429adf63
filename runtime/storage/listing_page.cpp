#include "runtime/storage/listing_page.hpp"

#include "runtime/base/number.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

namespace penstock {
namespace {

/// The text between <name> and </name>, searched from `at` on. Moves
/// `at` past it. S3 never nests an element inside one of the same name.
std::optional<std::string_view> element(std::string_view xml, std::string_view name, std::size_t& at) {
  const std::string open = fmt::format("<{}>", name);
  const std::string close = fmt::format("</{}>", name);
  const std::size_t begin = xml.find(open, at);
  if (begin == std::string_view::npos) return std::nullopt;
  const std::size_t end = xml.find(close, begin);
  if (end == std::string_view::npos) return std::nullopt;
  at = end + close.size();
  return xml.substr(begin + open.size(), end - begin - open.size());
}

std::string_view first_element(std::string_view xml, std::string_view name) {
  std::size_t at = 0;
  return element(xml, name, at).value_or(std::string_view());
}

void append_utf8(std::string& to, std::uint32_t c) {
  if (c < 0x80) {
    to += static_cast<char>(c);
  } else if (c < 0x800) {
    to += static_cast<char>(0xc0U | c >> 6U);
    to += static_cast<char>(0x80U | (c & 0x3fU));
  } else if (c < 0x10000) {
    to += static_cast<char>(0xe0U | c >> 12U);
    to += static_cast<char>(0x80U | (c >> 6U & 0x3fU));
    to += static_cast<char>(0x80U | (c & 0x3fU));
  } else {
    to += static_cast<char>(0xf0U | (c >> 18U & 0x07U));
    to += static_cast<char>(0x80U | (c >> 12U & 0x3fU));
    to += static_cast<char>(0x80U | (c >> 6U & 0x3fU));
    to += static_cast<char>(0x80U | (c & 0x3fU));
  }
}

std::string unescaped(std::string_view text) {
  std::string plain;
  while (!text.empty()) {
    const std::size_t amp = text.find('&');
    plain += text.substr(0, amp);
    if (amp == std::string_view::npos) break;
    text.remove_prefix(amp);
    const std::size_t end = text.substr(0, 12).find(';');
    const std::string_view name = end == std::string_view::npos ? std::string_view() : text.substr(1, end - 1);
    std::uint32_t code = 0;
    if (name == "amp") code = '&';
    if (name == "lt") code = '<';
    if (name == "gt") code = '>';
    if (name == "quot") code = '"';
    if (name == "apos") code = '\'';
    if (name.starts_with('#')) {
      const bool hex = name.substr(1).starts_with('x');
      const std::string_view digits = name.substr(hex ? 2 : 1);
      std::from_chars(digits.data(), digits.data() + digits.size(), code, hex ? 16 : 10);
    }
    if (code == 0 || code > 0x10ffff) {
      plain += '&';
      text.remove_prefix(1);
    } else {
      append_utf8(plain, code);
      text.remove_prefix(name.size() + 2);
    }
  }
  return plain;
}

}  // namespace

result<listing_page> parse_listing_page(std::string_view xml) {
  if (xml.find("<ListBucketResult") == std::string_view::npos)
    return refuse(errc::io, "the answer is not a list of objects");
  listing_page page;
  std::size_t at = 0;
  while (const auto contents = element(xml, "Contents", at)) {
    listed_object one;
    one.key = unescaped(first_element(*contents, "Key"));
    one.tag = unescaped(first_element(*contents, "ETag"));
    const auto size = whole_number<decltype(one.bytes)>(first_element(*contents, "Size"));
    if (one.key.empty() || !size) return refuse(errc::io, "the list has an object without a key or a size");
    one.bytes = *size;
    page.objects.push_back(std::move(one));
  }
  if (first_element(xml, "IsTruncated") == "true") {
    page.next = unescaped(first_element(xml, "NextContinuationToken"));
    if (page.next.empty()) return refuse(errc::io, "the list is marked as incomplete, but has no continuation token");
  }
  return page;
}

std::string error_code_of(std::string_view xml) {
  if (xml.find("<Error>") == std::string_view::npos) return {};
  const std::string_view code = first_element(xml, "Code");
  const bool sound = code.size() <= 64 && std::ranges::all_of(code, [](char c) {
                       return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
                     });
  return sound ? std::string(code) : std::string();
}

}  // namespace penstock
