#include "runtime/config/value_types.hpp"

#include "runtime/base/text.hpp"
#include "runtime/config/key_table.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

namespace penstock::config_file {
namespace {

/// Whether the string has a reference: "${env:BATCH:-32}" may yield a number or a boolean, but "32" in quotes
/// is a mistake.
bool refers(const node& from) {
  return from.kind == node_kind::text && from.text.find("${") != std::string::npos;
}

/// The source line shows a reference and not its value, so the message must contain the value.
bool refuse_found(value_reader& reader, const node& from, const std::string& text) {
  return reader.refuse(from.at, reader.expected(),
                       fmt::format("found \"{}\"", printable(shortened(text, 60))));
}

bool integer_from(value_reader& reader, const node& from, const std::string& text, std::uint64_t& into) {
  std::uint64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = end == text.data() + text.size() && !text.empty();
  if (!whole || status == std::errc::invalid_argument) return refuse_found(reader, from, text);
  if (status != std::errc() || value > reader.key().form.highest) return reader.out_of_range(from);
  into = value;
  return true;
}

bool read_integer(value_reader& reader, const node& from, std::uint64_t& into) {
  if (refers(from)) {
    const std::optional<std::string> text = reader.text(from);
    return text && integer_from(reader, from, *text, into);
  }
  if (from.kind != node_kind::integer) return reader.wrong_type(from);
  if (from.integer < 0 || static_cast<std::uint64_t>(from.integer) > reader.key().form.highest) {
    return reader.out_of_range(from);
  }
  into = static_cast<std::uint64_t>(from.integer);
  return true;
}

/// Reads the tables of an array, and reports all mistakes in them.
template <class Table>
bool read_tables(value_reader& reader, const node& from, std::vector<Table>& into) {
  if (!begin_elements(reader, from, any_length)) return false;
  const std::string_view table = elements_of(reader.key());
  std::vector<Table> all(from.elements.size());
  bool sound = true;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const node& element = from.elements[i];
    if (element.kind != node_kind::table) {
      reader.enter_element();
      sound = reader.wrong_type(element);
      reader.leave_element();
      continue;
    }
    for (const member& entry : element.members) {
      const key_info* const key = key_table::get().find_in(table, entry.name);
      if (key != nullptr) {
        sound &= value_reader(*key, reader.how()).read(entry.value, &all[i]);
      } else {
        sound = false;
        reader.how().found.add(unknown_key(entry, table));
      }
    }
  }
  if (sound) into = std::move(all);
  return sound;
}

template <class Table>
std::string write_tables(const std::vector<Table>& tables, std::string_view of) {
  std::string list;
  for (const Table& table : tables) {
    std::string keys;
    for (const key_info* key : key_table::get().keys_of(of)) {
      keys += fmt::format("{}{} = {}", keys.empty() ? "" : ", ", key->name,
                          key->value->write(key->locate_in(&table)));
    }
    list += fmt::format("{}{{ {} }}", list.empty() ? "" : ", ", keys);
  }
  return "[" + list + "]";
}

template <class Table>
void check_tables(const std::vector<Table>& tables, std::string_view of, breaches& found) {
  for (std::size_t i = 0; i < tables.size(); ++i) {
    for (const key_info* key : key_table::get().keys_of(of)) {
      breaches of_key;
      key->value->check(key->locate_in(&tables[i]), key->form, key->limits, of_key);
      for (breach& one : of_key) {
        found.push_back(
            {i, fmt::format("has a '{}' that {}", key->name, one.predicate), one.label, one.help});
      }
    }
  }
}

}  // namespace

bool read(value_reader& reader, const node& from, bool& into) {
  if (refers(from)) {
    const std::optional<std::string> text = reader.text(from);
    if (!text) return false;
    if (*text != "true" && *text != "false") return refuse_found(reader, from, *text);
    into = *text == "true";
    return true;
  }
  if (from.kind != node_kind::boolean) return reader.wrong_type(from);
  into = from.boolean;
  return true;
}

bool read(value_reader& reader, const node& from, std::uint32_t& into) {
  std::uint64_t wide = 0;
  if (!read_integer(reader, from, wide)) return false;
  into = static_cast<std::uint32_t>(wide);
  return true;
}

bool read(value_reader& reader, const node& from, std::uint64_t& into) {
  return read_integer(reader, from, into);
}

bool read(value_reader& reader, const node& from, double& into) {
  if (refers(from)) {
    const std::optional<std::string> text = reader.text(from);
    if (!text) return false;
    double value = 0;
    const auto [end, status] = std::from_chars(text->data(), text->data() + text->size(), value);
    if (status != std::errc() || end != text->data() + text->size() || !std::isfinite(value))
      return refuse_found(reader, from, *text);
    into = value;
    return true;
  }
  if (from.kind == node_kind::integer) {
    into = static_cast<double>(from.integer);
    return true;
  }
  if (from.kind != node_kind::number) return reader.wrong_type(from);
  if (!std::isfinite(from.number))
    return reader.refuse(from.at, "must be a finite number", "not a finite number");
  into = from.number;
  return true;
}

bool read(value_reader& reader, const node& from, std::string& into) {
  std::optional<std::string> text = reader.text(from);
  if (!text) return false;
  into = std::move(*text);
  return true;
}

bool read(value_reader& reader, const node& from, byte_size& into) {
  if (from.kind == node_kind::integer && from.integer >= 0 && reader.key().names_its_unit()) {
    into.bytes = static_cast<std::uint64_t>(from.integer);
    return true;
  }
  const std::optional<std::string> text = reader.text(from);
  return text && read_text(reader, from, *text, into);
}

bool read(value_reader& reader, const node& from, nanoseconds& into) {
  const std::optional<std::string> text = reader.text(from);
  return text && read_text(reader, from, *text, into);
}

bool read(value_reader& reader, const node& from, string_map& into) {
  if (from.kind != node_kind::table) return reader.wrong_type(from);
  bool sound = true;
  for (const member& entry : from.members) sound &= reader.read_entry(entry, into);
  return sound;
}

bool read(value_reader& reader, const node& from, std::vector<fault_config>& into) {
  return read_tables(reader, from, into);
}

bool read(value_reader& reader, const node& from, std::vector<mixed_dataset_config>& into) {
  return read_tables(reader, from, into);
}

bool read(value_reader& reader, const node& from, std::vector<double>& into) {
  if (from.kind == node_kind::array) return read<double>(reader, from, into);
  double only = 0;
  if (!read(reader, from, only)) return false;
  into = {only};
  return true;
}

bool read(value_reader& reader, const node& from, core_choice& into) {
  core_choice choice;
  if (from.kind == node_kind::text) {
    if (!read(reader, from, choice.rule)) return false;
  } else if (from.kind != node_kind::array) {
    return reader.wrong_type(from);
  } else if (from.elements.empty()) {
    return reader.refuse(from.at, "is empty", "no worker could run", "name at least one core, or write \"none\"");
  } else if (!read<std::uint32_t>(reader, from, choice.cores)) {
    return false;
  }
  into = std::move(choice);
  return true;
}

bool read_choice(value_reader& reader, const node& from, const std::vector<std::string_view>& choices,
                 unsigned& into) {
  const std::optional<std::string> text = reader.text(from);
  return text && read_choice_text(reader, from, *text, choices, into);
}

bool read_choice_text(value_reader& reader, const node& from, const std::string& text,
                      const std::vector<std::string_view>& choices, unsigned& into) {
  const auto found = std::find(choices.begin(), choices.end(), text);
  if (found == choices.end()) return reader.wrong_choice(from, text);
  into = static_cast<unsigned>(found - choices.begin());
  return true;
}

bool read_text(value_reader& reader, const node& from, const std::string& text, std::uint32_t& into) {
  const bool digits = !text.empty() && std::isdigit(static_cast<unsigned char>(text.front())) != 0;
  if (!digits && edit_distance(text, "auto") <= 2) {
    return reader.refuse(from.at, reader.expected(), "did you mean \"auto\"?");
  }
  if (!refers(from)) return reader.wrong_type(from);
  std::uint64_t wide = 0;
  if (!integer_from(reader, from, text, wide)) return false;
  into = static_cast<std::uint32_t>(wide);
  return true;
}

bool read_text(value_reader& reader, const node& from, const std::string& text, byte_size& into) {
  const result<std::uint64_t> parsed = parse_bytes(text);
  if (!parsed) return reader.refuse(from.at, reader.expected(), parsed.error().message);
  into.bytes = *parsed;
  return true;
}

bool read_text(value_reader& reader, const node& from, const std::string& text, nanoseconds& into) {
  const result<nanoseconds> parsed = parse_duration(text);
  if (!parsed) return reader.refuse(from.at, reader.expected(), parsed.error().message);
  into = *parsed;
  return true;
}

bool begin_elements(value_reader& reader, const node& from, std::size_t length) {
  if (from.kind != node_kind::array) return reader.wrong_type(from);
  if (length == any_length || from.elements.size() == length) return true;
  return reader.refuse(from.at, fmt::format("must be {}", expectation(reader.key().form, false)),
                       fmt::format("found {}", from.elements.size()));
}

bool read_element(value_reader& reader, const node& from, const value_functions& type, void* into) {
  reader.enter_element();
  bool sound = type.read(reader, from, into);
  if (sound) {
    // Checked per element, so that a mistake in one element does not hide one in another.
    breaches found;
    type.check(into, reader.key().form, reader.key().limits, found);
    sound = reader.check_element(from, found);
  }
  reader.leave_element();
  return sound;
}

std::string write(const string_map& value) {
  std::string list;
  for (const auto& [name, text] : value) {
    list += fmt::format("{}{} = {}", list.empty() ? "" : ", ", toml_key(name), write(text));
  }
  return list.empty() ? "{}" : "{ " + list + " }";
}

std::string write(const std::vector<fault_config>& value) {
  return write_tables(value, faults_table);
}

std::string write(const std::vector<mixed_dataset_config>& value) {
  return write_tables(value, datasets_table);
}

std::string write(const std::vector<double>& value) {
  return value.size() == 1 ? write(value.front()) : write_elements(value);
}

std::string write(const core_choice& value) {
  return value.cores.empty() ? write(value.rule) : write_elements(value.cores);
}

void check(const core_choice& value, const value_form& form, const value_limits& limits, std::size_t, breaches& found) {
  check_elements(value.cores, form, limits, found);
}

void check(std::uint64_t value, const value_form& form, const value_limits& limits, std::size_t element,
           breaches& found) {
  if (!within(form, limits, static_cast<double>(value), element, found)) return;
  if (value > form.highest) {
    found.push_back({element, "is out of range", fmt::format("must be at most {}", form.highest), ""});
  }
}

void check(double value, const value_form& form, const value_limits& limits, std::size_t element,
           breaches& found) {
  if (!std::isfinite(value)) {
    found.push_back({element, "must be a finite number", "", ""});
  } else {
    within(form, limits, value, element, found);
  }
}

void check(const std::string& value, const value_form&, const value_limits& limits, std::size_t,
           breaches& found) {
  check_text(limits, value, found);
}

void check(const byte_size& value, const value_form& form, const value_limits& limits, std::size_t element,
           breaches& found) {
  within(form, limits, static_cast<double>(value.bytes), element, found);
}

void check(const nanoseconds& value, const value_form& form, const value_limits& limits, std::size_t element,
           breaches& found) {
  within(form, limits, static_cast<double>(value.count()), element, found);
}

void check(const string_map& value, const value_form&, const value_limits& limits, std::size_t,
           breaches& found) {
  for (const auto& [name, text] : value) check_text(limits, text, found);
  if (limits.kind != limit_kind::variable_names) return;
  for (const auto& [name, text] : value) {
    if (!name.empty() && name.find('=') == std::string::npos) continue;
    found.push_back(
        {breach::whole,
         fmt::format("has an entry '{}', which cannot be an environment variable", printable(name)), "", ""});
  }
}

void check(const std::vector<fault_config>& value, const value_form&, const value_limits&, std::size_t,
           breaches& found) {
  check_tables(value, faults_table, found);
}

void check(const std::vector<mixed_dataset_config>& value, const value_form&, const value_limits&,
           std::size_t, breaches& found) {
  check_tables(value, datasets_table, found);
}

void check(dtype value, const value_form&, const value_limits& limits, std::size_t element, breaches& found) {
  const bool for_images =
      value == dtype::uint8 || value == dtype::float16 || value == dtype::bfloat16 || value == dtype::float32;
  if (spelling(value).empty()) {
    found.push_back({element, "has no such value", "not an enumerator", ""});
  } else if (limits.kind == limit_kind::image_type && !for_images) {
    found.push_back({element, fmt::format("cannot be \"{}\"", spelling(value)),
                     "images cannot be converted to it",
                     fmt::format("dtype is one of {}", quoted_list(image_types()))});
  }
}

void check(const std::vector<std::string>& values, const value_form&, const value_limits& limits, std::size_t,
           breaches& found) {
  if (limits.kind != limit_kind::command) return;
  if (values.empty()) found.push_back({breach::whole, "must not be empty", "name at least the program", ""});
  if (!values.empty() && values[0].empty()) found.push_back({0, "must not be empty", "name the program", ""});
}

}  // namespace penstock::config_file
