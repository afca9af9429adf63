// penstock: the command line. Each verb lives in a file of its own.
#include "runtime/config/describe.hpp"
#include "tools/penstock/config_source.hpp"
#include "tools/penstock/output.hpp"
#include "tools/penstock/run_command.hpp"
#include "tools/penstock/session_commands.hpp"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <nlohmann/json.hpp>

#include <functional>

namespace penstock::cli {
namespace {

struct check_options {
  config_source source;
  bool effective = false;
  bool explain = false;
  bool json = false;
};

int check_config(const check_options& o) {
  auto loaded = load(o.source);
  if (!loaded) return tell_rejection(loaded.error(), o.json);
  if (o.json) {
    print_json({{"ok", true},
                {"diagnostics", nlohmann::ordered_json::parse(config_file::to_json(loaded->warnings))}});
    return exit_ok;
  }
  tell_warnings(*loaded);
  if (o.explain) print(config_file::explain());
  if (o.effective) print(config_file::print_effective(*loaded));
  if (!o.explain && !o.effective) say(o.source.file + ": ok");
  return exit_ok;
}

void add_check_config(CLI::App& app, std::function<int()>& chosen) {
  auto o = std::make_shared<check_options>();
  CLI::App* verb = app.add_subcommand("check-config", "look for mistakes in a config file");
  add_config_options(*verb, o->source);
  verb->add_flag("--print-effective", o->effective, "every value and where it comes from, as TOML");
  verb->add_flag("--explain", o->explain, "which table is which actor, and what each key does");
  verb->add_flag("--strict", o->source.strict, "warnings are errors");
  verb->add_flag("--json", o->json, "diagnostics as JSON");
  verb->callback([o, &chosen] { chosen = [o] { return check_config(*o); }; });
}

void add_small_verbs(CLI::App& app, std::function<int()>& chosen) {
  app.add_subcommand("schema", "JSON Schema of config files, for editors")->callback([&chosen] {
    chosen = [] {
      print(config_file::json_schema());
      return static_cast<int>(exit_ok);
    };
  });
  auto json = std::make_shared<bool>(false);
  CLI::App* version = app.add_subcommand("version", "the version of this build");
  version->add_flag("--json", *json, "as JSON");
  version->callback([json, &chosen] {
    chosen = [json] {
      if (*json) {
        print_json({{"version", PENSTOCK_VERSION}, {"cuda", PENSTOCK_CUDA_BUILT}});
      } else {
        print(fmt::format(
            "penstock {} ({})", PENSTOCK_VERSION,
            PENSTOCK_CUDA_BUILT ? "CUDA and host device" : "host device only: built without nvcc"));
      }
      return static_cast<int>(exit_ok);
    };
  });
}

int main_of(int argc, char** argv) {
  CLI::App app(
      "penstock feeds GPUs: loader worker processes, one GPU owner, nothing lost when one of them dies",
      "penstock");
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "help of all verbs");
  std::function<int()> chosen;
  add_run_command(app, chosen);
  add_check_config(app, chosen);
  add_session_commands(app, chosen);
  add_small_verbs(app, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    // Help and version are no errors; everything else is usage, whatever CLI11's own number for it.
    return app.exit(e) == 0 ? exit_ok : exit_usage;
  }
  return chosen();
}

}  // namespace
}  // namespace penstock::cli

int main(int argc, char** argv) {
  return penstock::cli::main_of(argc, argv);
}
