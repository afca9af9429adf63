// Loads an actor config file into penstock::config. Merges and checks the file, its includes, the environment
// and --set, and keeps the source of each value. Used by the public load_config and by every verb of the CLI
// that takes a config.
#pragma once

#include "runtime/config/diagnostic.hpp"
#include "runtime/config/rules.hpp"

#include <penstock/config.hpp>
#include <penstock/error.hpp>

#include <tl/expected.hpp>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace penstock::config_file {

/// An override: "key.path=TOML value". A value that is not TOML
/// is taken as a string, so that device=host needs no quotes.
struct override_text {
  std::string assignment;
  /// Its name in messages and provenance: "--workers" for `penstock run --workers 4`.
  std::string origin = "--set";
};

using environment_list = std::vector<std::pair<std::string, std::string>>;

struct source_request {
  std::filesystem::path file;  ///< empty: reads only the environment and overrides
  /// Of several overrides of a key, the last one applies.
  std::vector<override_text> overrides;
  /// The only source of PENSTOCK__TABLE__KEY settings, ${env:NAME} and rank = "auto".
  environment_list environment;
  /// Absolute. `file` and relative paths on the command line and in the environment are relative to it.
  std::filesystem::path working_folder;
  bool strict = false;  ///< warnings become errors
  bool complete = false;  ///< no program sets more keys after loading
  /// Empty: a file with [jobs] and without [dataset] configures a pool, any other a stream.
  std::optional<config_purpose> purpose{};
};

enum class provenance_kind : std::uint8_t { fallback, file, include, environment, override, derived };

/// Where a value came from.
struct provenance {
  provenance_kind kind = provenance_kind::fallback;
  std::string origin;      ///< file, variable or option; for a derived value, its source
  std::uint32_t line = 0;  ///< 0: the origin has no lines

  /// "default", "photos.toml:12", "include base.toml:3", "environment PENSTOCK__LOADER__WORKERS", "--set",
  /// "from RANK and WORLD_SIZE".
  [[nodiscard]] std::string text() const;
};

struct loaded_config {
  /// The complete config: paths are absolute, references are expanded,
  /// rank is a number, and `include` is empty after merging.
  penstock::config values;
  /// By key path ("loader.workers"). An entry of a map has its own path
  /// ("loader.env.OMP_NUM_THREADS"). A value without a source is the default.
  std::map<std::string, provenance> sources;
  std::vector<std::string> included;  ///< files that were merged, in the order of their precedence
  std::vector<diagnostic> warnings;

  [[nodiscard]] provenance source_of(const std::string& key) const;
};

/// Why there is no config. Has every mistake, in the order of files and lines. `code` is errc::io (with os_code)
/// when the file itself cannot be read, else errc::config.
struct rejection {
  errc code = errc::config;
  int os_code = 0;
  std::vector<diagnostic> diagnostics;
};

/// Reads files only; no other effect. Safe to call from several threads. Never throws for anything in the
/// files.
tl::expected<loaded_config, rejection> load(const source_request& request);

/// The environment of this process. Like getenv, not safe while another thread calls setenv.
environment_list process_environment();

/// Converts a rejection to the failure that the public API throws, with all diagnostics, without colour.
failure as_failure(const rejection& refused);

}  // namespace penstock::config_file
