#include "tools/penstock/config_source.hpp"

#include "runtime/config/diagnostic.hpp"
#include "tools/penstock/output.hpp"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <filesystem>

namespace penstock::cli {
namespace {

config_file::colour colour_of_stderr() {
  return colours_on(STDERR_FILENO) ? config_file::colour::on : config_file::colour::off;
}

}  // namespace

void add_config_options(CLI::App& verb, config_source& into) {
  verb.add_option("FILE", into.file, "the config file")->required();
  add_set_option(verb, into);
}

void add_stream_options(CLI::App& verb, config_source& into) {
  add_config_options(verb, into);
  into.purpose = config_file::config_purpose::stream;
}

void add_set_option(CLI::App& verb, config_source& into) {
  verb.add_option("--set", into.sets, "override one key: loader.workers=4 (TOML values; may be repeated)")
      ->type_name("KEY=VALUE")
      ->take_all()
      ->allow_extra_args(false);
}

void add_config_shorthands(CLI::App& verb, config_source& into) {
  verb.add_option("--epochs", into.epochs, "how many times to go through the dataset")->type_name("N");
  verb.add_option("--device", into.device, "auto, host, cuda, cuda:N or uuid:GPU-...")->type_name("DEVICE");
  verb.add_option("--workers", into.workers, "loader worker processes, or \"auto\"")->type_name("N");
  verb.add_option("--slots", into.slots, "batches that a worker may hold at a time, or \"auto\"")->type_name("N");
}

tl::expected<config_file::loaded_config, config_file::rejection> load(const config_source& source) {
  config_file::source_request request;
  request.file = source.file;
  for (const std::string& assignment : source.sets) request.overrides.push_back({assignment});
  const auto shorthand = [&](const char* option, const char* key, const std::optional<std::string>& value) {
    if (value) request.overrides.push_back({std::string(key) + "=" + *value, option});
  };
  shorthand("--epochs", "sampler.epochs", source.epochs);
  shorthand("--device", "gpu.device", source.device);
  shorthand("--workers", "loader.workers", source.workers);
  shorthand("--slots", "loader.slots_per_worker", source.slots);
  shorthand("--timeout", "jobs.timeout", source.timeout);
  request.environment = config_file::process_environment();
  request.working_folder = std::filesystem::current_path();
  request.strict = source.strict;
  request.complete = true;
  request.purpose = source.purpose;
  return config_file::load(request);
}

int tell_rejection(const config_file::rejection& refused, bool json) {
  if (json) {
    nlohmann::ordered_json out{
        {"error", {{"kind", name_of(refused.code)}, {"message", "the config cannot be used"}}}};
    out["diagnostics"] = nlohmann::ordered_json::parse(config_file::to_json(refused.diagnostics));
    print_json("penstock.error/1", out);
  } else {
    say_raw(config_file::render(refused.diagnostics, colour_of_stderr()));
    say(config_file::summary_of(refused.diagnostics));
  }
  return exit_config;
}

void tell_warnings(const config_file::loaded_config& loaded) {
  say_raw(config_file::render(loaded.warnings, colour_of_stderr()));
}

}  // namespace penstock::cli
