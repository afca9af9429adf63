#include "runtime/config/load.hpp"

#include "runtime/base/text.hpp"
#include "runtime/config/apply.hpp"
#include "runtime/config/conclude.hpp"
#include "runtime/config/validate.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>

namespace penstock::config_file {
namespace {

provenance provenance_of(const span& key) {
  const source& from = *key.in;
  switch (from.kind()) {
    case source_kind::file: return {provenance_kind::file, from.name(), from.position_of(key.begin).line};
    case source_kind::include:
      return {provenance_kind::include, from.name(), from.position_of(key.begin).line};
    case source_kind::environment:
      return {provenance_kind::environment, printable(from.text().substr(0, from.text().find('='))), 0};
    case source_kind::override: return {provenance_kind::override, from.name(), 0};
  }
  return {};
}

}  // namespace

tl::expected<loaded_config, rejection> load(const source_request& request) {
  complaints found;
  layer_stack stack;
  reference_values references;
  // Like getenv, returns the first value if a name occurs several times.
  for (const auto& [name, value] : request.environment) references.environment.emplace(name, value);

  add_files(stack, request, references, found);
  references.all_variables_known = stack.complete;
  add_environment(stack, request, found);
  add_overrides(stack, request, found);

  applied made;
  made.broken = stack.broken;
  collect_variables(stack, references, made, found);
  apply(stack, references, made, found);

  loaded_config loaded;
  const severity level_of_warnings = request.strict ? severity::error : severity::warning;
  adopt_rank(made, request.environment, level_of_warnings, loaded.sources, found);
  if (!made.places.contains("name")) {
    made.values.name = as_session_name(request.file.stem().string());
    loaded.sources["name"] = {provenance_kind::derived, "the file's name", 0};
  }
  if (stack.complete) {
    const config_purpose written_for = purpose_of(made);
    if (request.purpose == config_purpose::stream && written_for == config_purpose::jobs)
      complain_of_pool(made, stack.sources.front(), found);
    else
      complain_of_contradictions(made, stack.sources.front(), request.purpose.value_or(written_for), request.complete, level_of_warnings, found);
    complain_of_unused(made, level_of_warnings, found);
  }

  std::vector<diagnostic> all = found.sorted();
  if (found.has_errors()) {
    if (stack.unreadable != 0) return tl::unexpected(rejection{errc::io, stack.unreadable, std::move(all)});
    return tl::unexpected(rejection{errc::config, 0, std::move(all)});
  }
  for (const auto& [path, place] : made.places) {
    if (place.key.in != nullptr) loaded.sources.try_emplace(path, provenance_of(place.key));
  }
  loaded.values = std::move(made.values);
  loaded.included = std::move(stack.included);
  loaded.warnings = std::move(all);
  return loaded;
}

std::string provenance::text() const {
  switch (kind) {
    case provenance_kind::fallback: return "default";
    case provenance_kind::file: return fmt::format("{}:{}", origin, line);
    case provenance_kind::include: return fmt::format("include {}:{}", origin, line);
    case provenance_kind::environment: return fmt::format("environment {}", origin);
    case provenance_kind::override: return origin;
    case provenance_kind::derived: return fmt::format("from {}", origin);
  }
  return {};
}

provenance loaded_config::source_of(const std::string& key) const {
  const auto at = sources.find(key);
  return at == sources.end() ? provenance{} : at->second;
}

// This is not next to the public load_config, because the worker
// library contains this file and must not export load_config.
environment_list process_environment() {
  environment_list all;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    all.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return all;
}

failure as_failure(const rejection& refused) {
  std::string message = render(refused.diagnostics, colour::off);
  constexpr std::string_view prefix = "error: ";  // for the command line; an exception needs no such prefix
  if (message.starts_with(prefix)) message.erase(0, prefix.size());
  while (message.ends_with('\n')) message.pop_back();
  return {refused.code, std::move(message), refused.os_code};
}

}  // namespace penstock::config_file
