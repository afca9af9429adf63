#include "runtime/config/limits.hpp"

#include "runtime/base/number.hpp"
#include "runtime/base/remote_path.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cmath>

namespace penstock::config_file {
namespace {

bool is_name_character(char c) noexcept {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' || c == '-';
}

bool is_device(std::string_view name) {
  constexpr std::array<std::string_view, 3> words{"auto", "host", "cuda"};
  if (std::find(words.begin(), words.end(), name) != words.end()) return true;
  if (name.starts_with("cuda:")) return whole_number<std::uint16_t>(name.substr(5)).has_value();
  constexpr std::string_view uuid = "uuid:GPU-";
  const auto is_uuid_character = [](char c) {
    return std::isxdigit(static_cast<unsigned char>(c)) != 0 || c == '-';
  };
  return name.starts_with(uuid) && name.size() > uuid.size() &&
         std::all_of(name.begin() + uuid.size(), name.end(), is_uuid_character);
}

void check_device(std::string_view name, std::vector<breach>& found) {
  if (is_device(name)) return;
  std::string_view near = meant_name(name, {"auto", "host", "cuda"});
  if (name == "gpu") near = "cuda";
  if (name == "cpu") near = "host";
  std::string label = near.empty() ? "there is no such device" : fmt::format("did you mean \"{}\"?", near);
  if (name.starts_with("cuda:")) label = "\"cuda:\" must be followed by the number of a GPU";
  if (name.starts_with("GPU-") && is_device(fmt::format("uuid:{}", name))) {
    label = fmt::format("did you mean \"uuid:{}\"?", name);
  }
  found.push_back({breach::whole, fmt::format("cannot be \"{}\"", printable(name)), std::move(label),
                   "a device is \"auto\", \"host\", \"cuda\", \"cuda:N\" or \"uuid:GPU-...\""});
}

void check_session_name(std::string_view name, std::vector<breach>& found) {
  if (is_session_name(name)) return;
  std::string label;
  const auto odd = std::find_if_not(name.begin(), name.end(), is_name_character);
  if (name.empty()) {
    label = "must not be empty";
  } else if (name.size() > session_name_max) {
    label = fmt::format("{} characters; at most {} are allowed", name.size(), session_name_max);
  } else if (odd != name.end()) {
    const auto at = static_cast<std::size_t>(odd - name.begin());
    std::size_t length = 1;
    while (at + length < name.size() && (static_cast<unsigned char>(name[at + length]) & 0xc0U) == 0x80U)
      ++length;
    label = fmt::format("must not contain '{}'", printable(name.substr(at, length)));
  } else {
    label = fmt::format("must not begin with '{}'", name.front());
  }
  found.push_back({breach::whole, "is not a session name", std::move(label),
                   "a session name has 1 to 64 letters, digits, '.', '_' and '-', and begins with a letter, "
                   "digit or '_'"});
}

void check_listen_address(std::string_view address, std::vector<breach>& found) {
  if (address.empty()) return;
  const std::size_t colon = address.rfind(':');
  const bool sound = colon != std::string_view::npos && whole_number<std::uint16_t>(address.substr(colon + 1));
  if (sound) return;
  const std::string_view port = colon == std::string_view::npos ? std::string_view() : address.substr(colon + 1);
  if (!port.empty() && port.find_first_not_of("0123456789") == std::string_view::npos) {
    found.push_back({breach::whole, "is not an address and a port", fmt::format("the port {} is out of range", port), "ports go from 0 to 65535"});
    return;
  }
  const bool only_port = whole_number<std::uint16_t>(address).has_value();
  found.push_back(
      {breach::whole, "is not an address and a port",
       only_port ? fmt::format("did you mean \"127.0.0.1:{}\"?", address) : "must end with ':' and a port",
       "write HOST:PORT, as in \"127.0.0.1:9464\"; an empty string disables it"});
}

/// "s3" for "s3://bucket/x"; empty if the text is not a URL.
std::string_view scheme_of(std::string_view text) {
  const std::size_t end = text.find("://");
  const auto allowed = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '+' || c == '-' || c == '.';
  };
  const bool is_scheme = end != std::string_view::npos && end > 0 &&
                         std::isalpha(static_cast<unsigned char>(text.front())) != 0 &&
                         std::all_of(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end), allowed);
  return is_scheme ? text.substr(0, end) : std::string_view();
}

/// `urls`: whether the path may be a URL of object storage.
void check_path(std::string_view path, bool urls, std::vector<breach>& found) {
  if (urls && is_url(path)) return;
  const std::string_view scheme = scheme_of(path);
  if (scheme.empty()) return;
  const std::string_view rest = path.substr(scheme.size() + 3);
  const bool is_file = scheme == "file" && rest.starts_with('/');
  found.push_back(
      {breach::whole, urls ? "is a URL that penstock does not read" : "is a URL, but penstock reads files",
       is_file ? fmt::format("did you mean \"{}\"?", printable(shortened(rest, 60)))
       : urls  ? "must be a path, or begin with s3://, http:// or https://"
               : "must be a path",
       is_file ? ""
               : "mount it as a file system, or copy the files; your own worker program ([loader] command) "
                 "can read URLs: give them in [dataset.options]"});
}

}  // namespace

std::string_view meant_name(std::string_view word, const std::vector<std::string_view>& names) {
  constexpr std::size_t word_max = 64;  // longer words are not typing errors
  if (word.size() > word_max) return {};
  std::string lower(word);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  const std::string_view near = nearest_name(lower, names);
  if (!near.empty()) return near;
  constexpr std::size_t stem_min = 3;
  const auto shares_stem = [&lower](std::string_view name) {
    return std::min(name.size(), lower.size()) >= stem_min &&
           (name.starts_with(lower) || lower.starts_with(name));
  };
  const auto found = std::find_if(names.begin(), names.end(), shares_stem);
  const bool only_one = std::count_if(names.begin(), names.end(), shares_stem) == 1;
  return only_one ? *found : std::string_view();
}

const std::vector<std::string_view>& image_types() {
  static const std::vector<std::string_view> names{"uint8", "float16", "bfloat16", "float32"};
  return names;
}

std::string quoted_list(const std::vector<std::string_view>& names) {
  std::string list;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) list += i + 1 == names.size() ? " or " : ", ";
    list += fmt::format("\"{}\"", names[i]);
  }
  return list;
}

std::string expectation(const value_form& form, bool element) {
  struct words {
    const char* one;
    const char* many;
  };
  const auto words_of = [](scalar kind) -> words {
    switch (kind) {
      case scalar::boolean: return {"true or false", "booleans"};
      case scalar::integer: return {"a whole number", "whole numbers"};
      case scalar::number: return {"a number", "numbers"};
      case scalar::text: return {"a string", "strings"};
      case scalar::size: return {"a size with its unit", "sizes"};
      case scalar::duration: return {"a duration with its unit", "durations"};
      case scalar::choice: return {"a string", "strings"};
      case scalar::table: return {"a table", "tables"};
    }
    return {"a value", "values"};
  };
  const words kind = words_of(form.element);
  if (element) return kind.one;
  switch (form.count) {
    case arity::one: return kind.one;
    case arity::optional: return fmt::format("{} or \"{}\"", kind.one, form.absent);
    case arity::fixed: return fmt::format("an array of {} {}", form.length, kind.many);
    case arity::list: return fmt::format("an array of {}", kind.many);
    case arity::one_or_list: return fmt::format("{} or an array of {}", kind.one, kind.many);
    case arity::list_or_word: return fmt::format("{} or an array of {}", quoted_list(form.choices), kind.many);
    case arity::map: return fmt::format("a table of {}", kind.many);
  }
  return kind.one;
}

std::string scalar_text(scalar kind, double value) {
  switch (kind) {
    case scalar::size: return bytes_as_config(static_cast<std::uint64_t>(value));
    case scalar::duration: return duration_as_config(nanoseconds(static_cast<std::int64_t>(value)));
    case scalar::integer: return fmt::format("{:.0f}", value);
    default: return fmt::format("{}", value);
  }
}

std::string limits_text(const value_form& form, const value_limits& limits) {
  if (limits.kind != limit_kind::range) return {};
  const std::string low = scalar_text(form.element, limits.low);
  if (std::isinf(limits.high)) return fmt::format("at least {}", low);
  const std::string high = scalar_text(form.element, limits.high);
  return low == high ? low : fmt::format("between {} and {}", low, high);
}

bool within(const value_form& form, const value_limits& limits, double value, std::size_t element,
            std::vector<breach>& found) {
  if (limits.kind != limit_kind::range) return true;
  if (value >= limits.low && value <= limits.high) return true;
  found.push_back({element, "is out of range", fmt::format("must be {}", limits_text(form, limits)), ""});
  return false;
}

void check_text(const value_limits& limits, std::string_view text, std::vector<breach>& found) {
  switch (limits.kind) {
    case limit_kind::path: check_path(text, false, found); break;
    case limit_kind::location: check_path(text, true, found); break;
    case limit_kind::device: check_device(text, found); break;
    case limit_kind::session_name: check_session_name(text, found); break;
    case limit_kind::listen_address: check_listen_address(text, found); break;
    default: break;
  }
}

bool is_session_name(std::string_view name) noexcept {
  return !name.empty() && name.size() <= session_name_max && name.front() != '.' && name.front() != '-' &&
         std::all_of(name.begin(), name.end(), is_name_character);
}

std::string as_session_name(std::string_view text) {
  std::string name(text.substr(0, session_name_max));
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !is_name_character(c); }, '-');
  const std::size_t begin = name.find_first_not_of(".-");
  return begin == std::string::npos ? "penstock" : name.substr(begin);
}

}  // namespace penstock::config_file
