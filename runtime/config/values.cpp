#include "runtime/config/values.hpp"

#include "runtime/base/remote_path.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/utf8.hpp"
#include "runtime/config/foreign_names.hpp"
#include "runtime/config/key_table.hpp"
#include "runtime/config/wording.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>

namespace penstock::config_file {
namespace {

std::filesystem::path absolute_below(const std::filesystem::path& folder, const std::string& path) {
  std::filesystem::path whole = (folder / path).lexically_normal();
  if (!whole.has_filename() && whole.has_parent_path()) whole = whole.parent_path();
  return whole;
}

/// Makes paths absolute. This is the place where the file that contains them is known.
void anchor_paths(const key_info& key, const node& from, void* value) {
  if (from.at.in == nullptr) return;
  const std::filesystem::path& folder = from.at.in->folder();
  if (key.limits.kind == limit_kind::path && key.form.count == arity::map) {
    for (auto& [name, path] : *static_cast<string_map*>(value)) path = absolute_below(folder, path).string();
  } else if (key.limits.kind == limit_kind::path) {
    auto& path = *static_cast<std::string*>(value);
    if (!path.empty()) path = absolute_below(folder, path).string();
  } else if (key.limits.kind == limit_kind::location) {
    auto& path = *static_cast<std::string*>(value);
    if (!path.empty() && !is_url(path)) path = absolute_below(folder, path).string();
  } else if (key.limits.kind == limit_kind::command) {
    auto& command = *static_cast<std::vector<std::string>*>(value);
    // A plain name is looked up when the worker starts.
    if (!command.empty() && command[0].find('/') != std::string::npos) {
      command[0] = absolute_below(folder, command[0]).string();
    }
  }
}

bool looks_like_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '-' || c == '+';
  });
}

/// A whole number in an option or a variable that is too large for TOML.
std::string_view beyond_64_bits(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  std::int64_t ignored = 0;
  const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), ignored);
  if (status != std::errc::result_out_of_range || rest != text.data() + text.size()) return {};
  return text.front() == '-' ? "must be at least -9223372036854775808"
                             : "must be at most 9223372036854775807";
}

/// What to write instead of a value of the wrong type. Empty if that is unclear, or if the new value would be
/// refused, too.
std::string remedy(const value_form& form, const value_limits& limits, bool element, const node& from) {
  const std::string written(from.at.text());
  const bool single = element || form.count == arity::one || form.count == arity::optional ||
                      form.count == arity::one_or_list;
  if (written.size() > 40 || written.find('\n') != std::string::npos) return {};
  if (!single) {
    const bool fits =
        form.element == scalar::integer ? from.kind == node_kind::integer : from.kind == node_kind::text;
    return (form.count == arity::list || form.count == arity::list_or_word) && fits ? fmt::format("write [{}]", written) : "";
  }
  const bool number_given = from.kind == node_kind::integer || from.kind == node_kind::number;
  const bool positive =
      number_given && !written.starts_with('-') && (from.kind != node_kind::number || from.number > 0);
  const auto allowed = [&](double value) { return value >= limits.low && value <= limits.high; };
  switch (form.element) {
    case scalar::duration:
      return positive && allowed(from.number * 1e9) ? fmt::format("did you mean \"{}s\"?", written) : "";
    case scalar::size: {
      if (from.kind != node_kind::integer || !positive) return {};
      if (!allowed(from.number >= 1024 ? from.number : from.number * (1 << 20))) return {};
      // A large number is probably meant in bytes, a small one in megabytes.
      return from.integer >= 1024
                 ? fmt::format("did you mean \"{}\"?", scalar_text(scalar::size, from.number))
                 : fmt::format("did you mean \"{}MiB\"?", written);
    }
    case scalar::text:
      if (from.kind == node_kind::array) return {};
      if (from.kind != node_kind::table) return fmt::format("write \"{}\"", written);
      return form.count == arity::map ? "found a table; a name with dots needs quotes" : "";
    case scalar::integer:
      if (from.kind == node_kind::number && from.number == std::floor(from.number) &&
          std::fabs(from.number) < 1e15) {
        return fmt::format("write {:.0f}", from.number);
      }
      if (from.kind == node_kind::text) {
        const std::string_view too_large = beyond_64_bits(from.text);
        if (!too_large.empty()) return std::string(too_large);
      }
      [[fallthrough]];
    case scalar::number:
      return from.kind == node_kind::text && looks_like_number(from.text)
                 ? fmt::format("write {} without quotes", from.text)
                 : "";
    case scalar::boolean:
      if (from.kind == node_kind::text && (from.text == "true" || from.text == "false"))
        return fmt::format("write {} without quotes", from.text);
      if (from.kind != node_kind::text && from.kind != node_kind::integer) return {};
      if (const auto meant = foreign_boolean(from.kind == node_kind::text ? from.text : written);
          !meant.empty())
        return fmt::format("did you mean {}?", meant);
      return {};
    default: return {};
  }
}

}  // namespace

value_reader::value_reader(const key_info& key, const reading& how) : key_(key), how_(how) {}

bool value_reader::read(const node& from, void* root) {
  void* const place = key_.locate(root);
  // entries of maps are added to the existing ones
  const std::shared_ptr<void> value = key_.value->copy(place);
  if (!key_.value->read(*this, from, value.get())) return false;
  std::vector<breach> found;
  key_.value->check(value.get(), key_.form, key_.limits, found);
  for (const breach& one : found) {
    in_element_ = one.element != breach::whole && one.element < from.elements.size();
    refuse(in_element_ ? from.elements[one.element].at : from.at, one.predicate, one.label, one.help);
  }
  in_element_ = false;
  if (!found.empty()) return false;
  anchor_paths(key_, from, value.get());
  key_.value->assign(place, value.get());
  return true;
}

bool value_reader::read_entry(const member& from, string_map& into) {
  entry_ = from.name;
  enter_element();
  const std::optional<std::string> value = text(from.value);
  leave_element();
  bool sound = value.has_value();
  if (sound) {
    std::vector<breach> found;
    check_text(key_.limits, *value, found);
    sound = check_element(from.value, found);
  }
  if (key_.limits.kind == limit_kind::variable_names &&
      (from.name.empty() || from.name.find('=') != std::string::npos)) {
    sound =
        refuse(from.key, "is not the name of an environment variable", "must not be empty or contain '='");
  }
  entry_.reset();
  if (sound) into[from.name] = *value;
  if (sound && key_.limits.kind == limit_kind::path && from.value.at.in != nullptr)
    into[from.name] = absolute_below(from.value.at.in->folder(), *value).string();
  return sound;
}

std::optional<std::string> value_reader::text(const node& from) {
  if (from.kind != node_kind::text) {
    wrong_type(from);
    return std::nullopt;
  }
  static const std::filesystem::path nowhere;
  const source* const in = from.at.in;
  expansion made = expand(from.text, how_.references, in != nullptr ? in->folder() : nowhere, how_.scope);
  const std::vector<std::size_t> offsets =
      made.errors.empty() ? std::vector<std::size_t>() : literal_offsets(from.at.text());
  const bool mapped = offsets.size() == from.text.size() + 1;
  for (const reference_error& error : made.errors) {
    if (how_.overridden && error.unset) continue;
    span at = from.at;
    if (mapped) {
      at.end = at.begin + offsets[error.end];
      at.begin += offsets[error.begin];
    }
    how_.found.add(
        {.key = key_.path, .at = at, .message = error.message, .label = error.label, .help = error.help});
  }
  if (!made.sound) return std::nullopt;
  if (made.text.find('\0') != std::string::npos) {
    refuse(from.at, "must not contain the character U+0000", "");
    return std::nullopt;
  }
  return std::move(made.text);
}

std::string value_reader::subject() const {
  if (entry_) return fmt::format("'{}' in [{}]", printable(*entry_), key_.path);
  return fmt::format("{}{}", in_element_ ? "an element of " : "", key_.subject());
}

bool value_reader::refuse(span at, std::string_view predicate, std::string label, std::string help) {
  how_.found.add({.key = key_.path,
                  .at = at,
                  .message = fmt::format("{} {}", subject(), predicate),
                  .label = std::move(label),
                  .help = std::move(help)});
  return false;
}

std::string value_reader::expected() const {
  return fmt::format("must be {}", expectation(key_.form, in_element_ || entry_.has_value()));
}

bool value_reader::check_element(const node& from, const std::vector<breach>& found) {
  for (const breach& one : found) refuse(from.at, one.predicate, one.label, one.help);
  return found.empty();
}

bool value_reader::wrong_type(const node& from) {
  std::string help;
  if (key_.form.element == scalar::duration) help = "units are d, h, m, s, ms, us and ns, as in \"250ms\"";
  if (key_.form.element == scalar::size)
    help = "units are B, KiB, MiB, GiB, TiB, KB, MB, GB and TB, as in \"64MiB\"";
  std::string label = remedy(key_.form, key_.limits, in_element_ || entry_.has_value(), from);
  if (label.empty() && key_.form.element == scalar::table && from.kind == node_kind::table) label = fmt::format("write [[{}]]", key_.path);
  if (label.empty()) label = fmt::format("found {}", name_of(from.kind));
  return refuse(from.at, expected(), std::move(label), from.kind == node_kind::text ? "" : help);
}

bool value_reader::out_of_range(const node& from) {
  const bool bounded = key_.limits.kind == limit_kind::range;
  const double low = bounded ? std::max(key_.limits.low, 0.0) : 0.0;
  const double high = bounded ? key_.limits.high : std::numeric_limits<double>::infinity();
  const std::string highest =
      std::isinf(high) ? fmt::format("{}", key_.form.highest) : fmt::format("{:.0f}", high);
  return refuse(from.at, "is out of range", fmt::format("must be between {:.0f} and {}", low, highest));
}

bool value_reader::wrong_choice(const node& from, const std::string& text) {
  // The choices of this key, which may be fewer than its type has.
  const std::vector<std::string_view> choices = choices_of(key_);
  std::string_view near = meant_name(text, choices);
  const std::string_view foreign = foreign_dtype(text);
  if (std::ranges::find(choices, foreign) != choices.end()) near = foreign;
  return refuse(
      from.at, fmt::format("cannot be \"{}\"", printable(shortened(text, 80))),
      near.empty() ? "no such value" : fmt::format("did you mean \"{}\"?", near),
      fmt::format("{} is {}{}", key_.name, choices.size() > 1 ? "one of " : "always ", quoted_list(choices)));
}

std::string toml_string(std::string_view text) {
  std::string written = "\"";
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const char c = text.front();
    const auto byte = static_cast<unsigned char>(c);
    if (length == 0) {
      written += fmt::format("\\\\x{:02x}", byte);
    } else if (c == '"' || c == '\\') {
      written += {'\\', c};
    } else if (c == '\n') {
      written += "\\n";
    } else if (c == '\t') {
      written += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      written += fmt::format("\\u{:04x}", byte);
    } else {
      written += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return written + "\"";
}

std::string toml_key(std::string_view name) {
  const bool bare = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
  });
  return bare ? std::string(name) : toml_string(name);
}

std::string toml_number(double value) {
  std::string written = fmt::format("{}", value);
  // Digits alone would be an integer to TOML; fmt writes 1e+16 and the like as TOML does.
  if (written.find_first_not_of("-0123456789") == std::string::npos) written += ".0";
  return written;
}

}  // namespace penstock::config_file
