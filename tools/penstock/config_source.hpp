// The config options that several verbs share: FILE, --set, and shorthands for some --set keys.
#pragma once

#include "runtime/config/load.hpp"

#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace penstock::cli {

struct config_source {
  std::string file;
  std::vector<std::string> sets;
  std::optional<std::string> epochs;
  std::optional<std::string> device;
  std::optional<std::string> workers;
  std::optional<std::string> slots;
  std::optional<std::string> timeout;
  bool strict = false;
  std::optional<config_file::config_purpose> purpose{};  ///< none: decided by the file's tables
};

/// Adds FILE and --set.
void add_config_options(CLI::App& verb, config_source& into);
/// Like add_config_options(), for a verb that only works on a stream: load() refuses the file of a pool of jobs.
void add_stream_options(CLI::App& verb, config_source& into);
/// Adds only --set.
void add_set_option(CLI::App& verb, config_source& into);
/// Adds --epochs, --device, --workers and --slots.
void add_config_shorthands(CLI::App& verb, config_source& into);

/// If FILE is empty, only options and the environment count.
tl::expected<config_file::loaded_config, config_file::rejection> load(const config_source& source);

/// Prints why a config was rejected; returns the exit code.
int tell_rejection(const config_file::rejection& refused, bool json);
/// Prints warnings on stderr.
void tell_warnings(const config_file::loaded_config& loaded);

}  // namespace penstock::cli
