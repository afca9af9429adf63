// Every table and key of the config file as data, made from <penstock/config_keys.def>. The only list of
// keys: parsing, checks, schema, docs and printing iterate over it. Built once, immutable, thread-safe.
#pragma once

#include "runtime/config/limits.hpp"
#include "runtime/config/values.hpp"

#include <penstock/config.hpp>

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::config_file {

/// When a changed value takes effect: at the next start of a session,
/// and with `worker` also in every worker that starts later.
enum class effect_time : std::uint8_t { session, worker };

/// The values that other keys must have for a key to have an effect.
enum class used_with : std::uint8_t {
  always,
  for_stored,  ///< every dataset type but synthetic
  for_synthetic,
  for_raw_or_synthetic,
  for_typed,  ///< raw, tokens, synthetic: types whose files need not state their element type
  for_tokens,
  for_custom,
  for_objects,  ///< types that read from object storage
  for_members,  ///< tar and npy
  for_images,   ///< types that may have images: image-folder, tar and custom
  for_random_resized_crop,
  for_centre_crop,
  for_float_images,       ///< images, gpu.dtype not uint8
  for_shuffle_or_subset,  ///< values of sampler.kind
  for_weighted,
  for_weighted_or_balanced,
  for_subset,
  for_image_folder,
  for_window,
  for_window_of_shards,  ///< sampler.kind = "window" and dataset.type = "tar"
  for_relaxed,           ///< scheduler.order
};

struct table_info {
  std::string_view path;  ///< "loader.restart"; "" for the top; "dataset.faults[]" for the tables of an array
  std::string_view actor;  ///< the actor that it configures; inherited by inner tables
  std::string_view help;
};

struct key_info {
  std::string path;       ///< "loader.restart.type"
  std::string_view name;  ///< "type"
  std::string_view table;
  value_form form;
  value_limits limits;
  used_with use = used_with::always;
  effect_time effect = effect_time::session;
  std::string_view help;
  const value_functions* value = nullptr;
  std::string default_text;  ///< as TOML
  /// root: a penstock::config; a fault_config for keys of "dataset.faults[]", a mixed_dataset_config for those of
  /// "datasets[]".
  void* (*locate)(void* root) = nullptr;

  [[nodiscard]] const void* locate_in(const void* root) const { return locate(const_cast<void*>(root)); }
  /// The key's name in messages: "'type' in [loader.restart]".
  [[nodiscard]] std::string subject() const;
  /// A key with "bytes" in its name ("bytes_per_sample") may be a plain number; every other size needs a
  /// unit.
  [[nodiscard]] bool names_its_unit() const {
    return form.element == scalar::size && name.starts_with("bytes_");
  }
  /// As TOML.
  [[nodiscard]] std::string text_of(const void* root) const { return value->write(locate_in(root)); }
  [[nodiscard]] bool is_default(const void* root) const { return text_of(root) == default_text; }
};

class key_table {
 public:
  static const key_table& get();

  /// The tables in the order of docs and of printed files: a table comes before the tables within it.
  [[nodiscard]] const std::vector<table_info>& tables() const noexcept { return tables_; }
  [[nodiscard]] const std::vector<key_info>& keys() const noexcept { return keys_; }
  [[nodiscard]] std::vector<const key_info*> keys_of(std::string_view table) const;
  [[nodiscard]] const key_info* find(std::string_view path) const;
  /// Looks up a key or table by its name in a file. A quoted name with a dot in it never matches.
  [[nodiscard]] const key_info* find_in(std::string_view table, std::string_view name) const;
  [[nodiscard]] const table_info* find_table_in(std::string_view table, std::string_view name) const;
  [[nodiscard]] const table_info* find_table(std::string_view path) const;
  /// Tables directly below a table.
  [[nodiscard]] std::vector<const table_info*> tables_below(std::string_view path) const;
  /// The actor of a table or of the nearest table around it that has one.
  [[nodiscard]] std::string_view actor_of(std::string_view table) const;

 private:
  friend class key_table_builder;
  key_table();

  std::vector<table_info> tables_;
  std::vector<key_info> keys_;
  std::map<std::string, std::size_t, std::less<>> index_;
};

inline constexpr std::string_view faults_table = "dataset.faults[]";
inline constexpr std::string_view datasets_table = "datasets[]";
/// The path of the keys in a table of this array. Faults have the same keys in [dataset] and [[datasets]].
[[nodiscard]] inline std::string_view elements_of(const key_info& key) noexcept {
  return key.name == "faults" ? faults_table : datasets_table;
}

/// Whether the key is in an array of tables, like the keys of a fault. Its root is then not the config.
bool in_array(const key_info& key) noexcept;

/// Why a key has no effect in this config: the key that it depends on, and the values required of that key.
struct unused_because {
  std::string_view decided_by;  ///< "dataset.type"
  std::string wanted;           ///< "\"synthetic\""
};
std::optional<unused_because> unused(used_with use, const penstock::config& values);
/// For the docs: the keys that decide whether a key is used, each with the values that it must have. Empty if
/// the key is always used.
std::vector<std::pair<std::string_view, std::string>> conditions_of(used_with use);

/// The complaint about an unknown key or table, with the nearest known name.
complaint unknown_key(const member& entry, std::string_view table);

/// "name" below "table", as a path.
std::string join(std::string_view table, std::string_view name);

}  // namespace penstock::config_file
