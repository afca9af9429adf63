// Reads a key's value from the tree, writes it back as TOML and checks it against its limits, for each C++
// type that a key can have. The key table stores value_functions for each type; value_reader has the context
// of a read and reports errors about the key.
#pragma once

#include "runtime/config/document.hpp"
#include "runtime/config/interpolation.hpp"
#include "runtime/config/limits.hpp"
#include "runtime/config/spelling.hpp"

#include <penstock/config.hpp>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::config_file {

struct key_info;

/// Context shared by all reads of one load.
struct reading {
  const reference_values& references;
  complaints& found;
  reference_scope scope = reference_scope::everything;
  /// A layer of higher precedence replaces the value, so a reference to an unset variable is not an error.
  bool overridden = false;
};

class value_reader {
 public:
  value_reader(const key_info& key, const reading& how);

  /// Reads and checks `from` into the key's place under `root` (a penstock::config, or a fault_config for the
  /// keys of faults). False: the value was wrong; this was reported, and the place is unchanged.
  bool read(const node& from, void* root);
  /// Reads one entry of a map.
  bool read_entry(const member& from, string_map& into);

  // The rest is for the overloads of read().
  [[nodiscard]] const key_info& key() const noexcept { return key_; }
  [[nodiscard]] const reading& how() const noexcept { return how_; }
  /// A string with its references expanded.
  std::optional<std::string> text(const node& from);
  bool refuse(span at, std::string_view predicate, std::string label, std::string help = {});
  bool wrong_type(const node& from);
  bool out_of_range(const node& from);
  /// "must be a size with its unit or \"auto\"".
  [[nodiscard]] std::string expected() const;
  /// Reports what is wrong with an element. Returns true if nothing is.
  bool check_element(const node& from, const std::vector<breach>& found);
  bool wrong_choice(const node& from, const std::string& text);
  /// Between enter and leave, messages refer to an element of the value.
  void enter_element() noexcept { in_element_ = true; }
  void leave_element() noexcept { in_element_ = false; }

 private:
  [[nodiscard]] std::string subject() const;

  const key_info& key_;
  reading how_;
  bool in_element_ = false;
  std::optional<std::string> entry_;
};

/// The operations on a key's type. All pointers are to that type.
struct value_functions {
  value_form (*form)();
  bool (*read)(value_reader&, const node&, void* into);
  std::string (*write)(const void*);
  void (*check)(const void*, const value_form&, const value_limits&, std::vector<breach>&);
  std::shared_ptr<void> (*copy)(const void*);
  void (*assign)(void* to, const void* from);
};

std::string toml_string(std::string_view text);
std::string toml_key(std::string_view name);
std::string toml_number(double value);

}  // namespace penstock::config_file
