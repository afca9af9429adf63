// The C++ types of keys, one set of overloads each: form_of, read, write, check. Included only by the key
// table. A new type of key needs only its overloads here.
#pragma once

#include "runtime/base/units.hpp"
#include "runtime/config/values.hpp"

#include <fmt/core.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace penstock::config_file {

template <class T>
struct type_tag {};

// Scalars.

inline value_form form_of(type_tag<bool>) {
  return {.element = scalar::boolean};
}
inline value_form form_of(type_tag<std::uint32_t>) {
  return {.element = scalar::integer, .highest = std::numeric_limits<std::uint32_t>::max()};
}
inline value_form form_of(type_tag<std::uint64_t>) {
  // The range of TOML's integers, not of the C++ type.
  return {.element = scalar::integer, .highest = std::numeric_limits<std::int64_t>::max()};
}
inline value_form form_of(type_tag<double>) {
  return {.element = scalar::number};
}
inline value_form form_of(type_tag<std::string>) {
  return {.element = scalar::text};
}
inline value_form form_of(type_tag<byte_size>) {
  return {.element = scalar::size};
}
inline value_form form_of(type_tag<nanoseconds>) {
  return {.element = scalar::duration};
}
inline value_form form_of(type_tag<string_map>) {
  return {.element = scalar::text, .count = arity::map};
}
template <class Table>
concept table_of_array = std::is_same_v<Table, fault_config> || std::is_same_v<Table, mixed_dataset_config>;
template <table_of_array Table>
value_form form_of(type_tag<std::vector<Table>>) {
  return {.element = scalar::table, .count = arity::list};
}
inline value_form form_of(type_tag<std::vector<double>>) {
  return {.element = scalar::number, .count = arity::one_or_list};
}
inline value_form form_of(type_tag<core_choice>) {
  value_form form{.element = scalar::integer, .count = arity::list_or_word, .highest = std::numeric_limits<std::uint32_t>::max()};
  form.choices = spellings<core_rule>();
  return form;
}
template <class Enum>
requires std::is_enum_v<Enum> value_form form_of(type_tag<Enum>) {
  return {.element = scalar::choice, .choices = spellings<Enum>()};
}

bool read(value_reader& reader, const node& from, bool& into);
bool read(value_reader& reader, const node& from, std::uint32_t& into);
bool read(value_reader& reader, const node& from, std::uint64_t& into);
bool read(value_reader& reader, const node& from, double& into);
bool read(value_reader& reader, const node& from, std::string& into);
bool read(value_reader& reader, const node& from, byte_size& into);
bool read(value_reader& reader, const node& from, nanoseconds& into);
bool read(value_reader& reader, const node& from, string_map& into);
bool read(value_reader& reader, const node& from, std::vector<fault_config>& into);
bool read(value_reader& reader, const node& from, std::vector<mixed_dataset_config>& into);
bool read(value_reader& reader, const node& from, std::vector<double>& into);
bool read(value_reader& reader, const node& from, core_choice& into);
/// The index of a choice.
bool read_choice(value_reader& reader, const node& from, const std::vector<std::string_view>& choices,
                 unsigned& into);
/// Converts an expanded string into a value of the type. A reference may yield a number
/// ("${env:WORKERS:-4}"); a number in plain quotes is refused.
bool read_text(value_reader& reader, const node& from, const std::string& text, std::uint32_t& into);
bool read_text(value_reader& reader, const node& from, const std::string& text, byte_size& into);
bool read_text(value_reader& reader, const node& from, const std::string& text, nanoseconds& into);
bool read_choice_text(value_reader& reader, const node& from, const std::string& text,
                      const std::vector<std::string_view>& choices, unsigned& into);
template <class Enum>
requires std::is_enum_v<Enum>
bool read_text(value_reader& reader, const node& from, const std::string& text, Enum& into) {
  unsigned index = 0;
  if (!read_choice_text(reader, from, text, spellings<Enum>(), index)) return false;
  into = static_cast<Enum>(index);
  return true;
}

template <class Enum>
requires std::is_enum_v<Enum>
bool read(value_reader& reader, const node& from, Enum& into) {
  unsigned index = 0;
  if (!read_choice(reader, from, spellings<Enum>(), index)) return false;
  into = static_cast<Enum>(index);
  return true;
}

inline std::string write(bool value) {
  return value ? "true" : "false";
}
inline std::string write(std::uint32_t value) {
  return fmt::format("{}", value);
}
inline std::string write(std::uint64_t value) {
  return fmt::format("{}", value);
}
inline std::string write(double value) {
  return toml_number(value);
}
inline std::string write(const std::string& value) {
  return toml_string(escaped_references(value));
}
inline std::string write(const byte_size& value) {
  return toml_string(bytes_as_config(value.bytes));
}
inline std::string write(const nanoseconds& value) {
  return toml_string(duration_as_config(value));
}
std::string write(const string_map& value);
std::string write(const std::vector<fault_config>& value);
std::string write(const std::vector<mixed_dataset_config>& value);
std::string write(const std::vector<double>& value);
std::string write(const core_choice& value);
template <class Enum>
requires std::is_enum_v<Enum> std::string write(const Enum& value) {
  return toml_string(spelling(value));
}

using breaches = std::vector<breach>;

inline void check(bool, const value_form&, const value_limits&, std::size_t, breaches&) {}
inline void check(std::uint32_t value, const value_form& form, const value_limits& limits,
                  std::size_t element, breaches& found) {
  within(form, limits, value, element, found);
}
void check(std::uint64_t value, const value_form&, const value_limits&, std::size_t element, breaches&);
void check(double value, const value_form&, const value_limits&, std::size_t element, breaches&);
void check(const std::string& value, const value_form&, const value_limits&, std::size_t element, breaches&);
void check(const byte_size& value, const value_form&, const value_limits&, std::size_t element, breaches&);
void check(const nanoseconds& value, const value_form&, const value_limits&, std::size_t element, breaches&);
void check(const string_map& value, const value_form&, const value_limits&, std::size_t element, breaches&);
void check(const std::vector<fault_config>& value, const value_form&, const value_limits&, std::size_t,
           breaches&);
void check(const std::vector<mixed_dataset_config>& value, const value_form&, const value_limits&,
           std::size_t, breaches&);
void check(const core_choice& value, const value_form&, const value_limits&, std::size_t, breaches&);
void check(dtype value, const value_form&, const value_limits&, std::size_t element, breaches&);
template <class Enum>
requires std::is_enum_v<Enum>
void check(const Enum& value, const value_form&, const value_limits&, std::size_t element, breaches& found) {
  if (spelling(value).empty()) found.push_back({element, "has no such value", "not an enumerator", ""});
}

// Types made of scalars.

/// The word for "no value" in a file: "auto" lets penstock choose a number, "none" means no time limit.
template <class T>
inline constexpr std::string_view word_for_absent = std::is_same_v<T, nanoseconds> ? "none" : "auto";

template <class T>
value_form form_of(type_tag<std::optional<T>>) {
  value_form form = form_of(type_tag<T>());
  form.count = arity::optional;
  form.absent = word_for_absent<T>;
  return form;
}
template <class T>
value_form form_of(type_tag<std::vector<T>>) {
  value_form form = form_of(type_tag<T>());
  form.count = arity::list;
  return form;
}
template <class T, std::size_t N>
value_form form_of(type_tag<std::array<T, N>>) {
  value_form form = form_of(type_tag<T>());
  form.count = arity::fixed;
  form.length = N;
  return form;
}

template <class T>
bool read(value_reader& reader, const node& from, std::optional<T>& into) {
  T value{};
  if (from.kind == node_kind::text) {
    const std::optional<std::string> text = reader.text(from);
    if (!text) return false;
    if (*text == word_for_absent<T>) {
      into.reset();
      return true;
    }
    if (!read_text(reader, from, *text, value)) return false;
  } else if (!read(reader, from, value)) {
    return false;
  }
  into = value;
  return true;
}

template <class T>
const value_functions& functions_of();

inline constexpr std::size_t any_length = static_cast<std::size_t>(-1);

bool begin_elements(value_reader& reader, const node& from, std::size_t length);
bool read_element(value_reader& reader, const node& from, const value_functions& type, void* into);

// Read every element, so that every mistake is found.
template <class T>
bool read(value_reader& reader, const node& from, std::vector<T>& into) {
  if (!begin_elements(reader, from, any_length)) return false;
  bool sound = true;
  std::vector<T> all(from.elements.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    sound &= read_element(reader, from.elements[i], functions_of<T>(), &all[i]);
  }
  if (sound) into = std::move(all);
  return sound;
}
template <class T, std::size_t N>
bool read(value_reader& reader, const node& from, std::array<T, N>& into) {
  if (!begin_elements(reader, from, N)) return false;
  bool sound = true;
  std::array<T, N> all{};
  for (std::size_t i = 0; i < N; ++i)
    sound &= read_element(reader, from.elements[i], functions_of<T>(), &all[i]);
  if (sound) into = all;
  return sound;
}

template <class T>
std::string write(const std::optional<T>& value) {
  return value ? write(*value) : toml_string(std::string(word_for_absent<T>));
}
template <class Elements>
std::string write_elements(const Elements& values) {
  std::string list;
  for (const auto& value : values) list.append(list.empty() ? "" : ", ").append(write(value));
  return "[" + list + "]";
}
template <class T>
std::string write(const std::vector<T>& values) {
  return write_elements(values);
}
template <class T, std::size_t N>
std::string write(const std::array<T, N>& values) {
  return write_elements(values);
}

template <class T>
void check(const std::optional<T>& value, const value_form& form, const value_limits& limits,
           std::size_t element, breaches& found) {
  if (value) check(*value, form, limits, element, found);
}
template <class Elements>
void check_elements(const Elements& values, const value_form& form, const value_limits& limits,
                    breaches& found) {
  for (std::size_t i = 0; i < values.size(); ++i) check(values[i], form, limits, i, found);
}
void check(const std::vector<std::string>& values, const value_form&, const value_limits&, std::size_t,
           breaches&);
template <class T>
void check(const std::vector<T>& values, const value_form& form, const value_limits& limits, std::size_t,
           breaches& found) {
  check_elements(values, form, limits, found);
}
template <class T, std::size_t N>
void check(const std::array<T, N>& values, const value_form& form, const value_limits& limits, std::size_t,
           breaches& found) {
  check_elements(values, form, limits, found);
}

// The type as the key table stores it.

template <class T>
const value_functions& functions_of() {
  static constexpr value_functions all{
      .form = [] { return form_of(type_tag<T>()); },
      .read = [](value_reader& reader, const node& from,
                 void* into) { return read(reader, from, *static_cast<T*>(into)); },
      .write = [](const void* value) { return write(*static_cast<const T*>(value)); },
      .check =
          [](const void* value, const value_form& form, const value_limits& limits, breaches& found) {
            check(*static_cast<const T*>(value), form, limits, breach::whole, found);
          },
      .copy = [](const void* value) -> std::shared_ptr<void> {
        return std::make_shared<T>(*static_cast<const T*>(value));
      },
      .assign = [](void* to, const void* from) { *static_cast<T*>(to) = *static_cast<const T*>(from); },
  };
  return all;
}

}  // namespace penstock::config_file
