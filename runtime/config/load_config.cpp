// The public load_config: calls load() with the process's environment, and throws on failure.
#include "runtime/base/log.hpp"
#include "runtime/base/result.hpp"
#include "runtime/config/load.hpp"

#include <system_error>

namespace penstock {

config load_config(const std::filesystem::path& file) {
  return load_config(file, {});
}

config load_config(const std::filesystem::path& file, const std::vector<std::string>& overrides) {
  config_file::source_request request;
  request.file = file;
  for (const std::string& one : overrides) request.overrides.push_back({one, "override"});
  request.environment = config_file::process_environment();
  std::error_code failed;
  request.working_folder = std::filesystem::current_path(failed);
  if (failed) throw error(os_failure(errc::io, failed.value(), "the current folder is gone"));
  auto loaded = config_file::load(request);
  if (!loaded) throw error(config_file::as_failure(loaded.error()));
  for (const config_file::diagnostic& warning : loaded->warnings) {
    log::warn("config", "{}:{}: {}", warning.where.origin, warning.where.line, warning.message);
  }
  return std::move(loaded->values);
}

}  // namespace penstock
