// check-config and schema: check a config file, and print the schema of config files.
#include "runtime/config/describe.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/config/machine_rules.hpp"
#include "tools/penstock/config_source.hpp"
#include "tools/penstock/output.hpp"
#include "tools/penstock/verb_table.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace penstock::cli {
namespace {

struct check_options {
  config_source source;
  bool effective = false;
  bool explain = false;
  bool json = false;
};

bool is_error(const config_file::diagnostic& d) {
  return d.level == config_file::severity::error;
}

int check_config(const check_options& o) {
  auto loaded = load(o.source);
  if (!loaded) return tell_rejection(loaded.error(), o.json);
  for (const auto& check : {data_not_here, data_not_usable, members_not_there, program_not_here, cores_not_here, hosts_without_secret, hosts_secret_not_here}) {
    auto doubt = check(*loaded, o.source.file);
    if (!doubt) continue;
    if (o.source.strict) doubt->level = config_file::severity::error;
    loaded->warnings.push_back(std::move(*doubt));
  }
  if (auto no = slots_beyond_memory(*loaded, o.source.file)) loaded->warnings.push_back(std::move(*no));
  if (auto no = nothing_to_deliver(*loaded, o.source.file)) loaded->warnings.push_back(std::move(*no));
  if (std::ranges::any_of(loaded->warnings, is_error))
    return tell_rejection({errc::config, 0, loaded->warnings}, o.json);
  if (o.json) {
    nlohmann::ordered_json answer = {
        {"ok", true}, {"diagnostics", nlohmann::ordered_json::parse(config_file::to_json(loaded->warnings))}};
    if (o.explain) answer["explanation"] = config_file::explain();
    if (o.effective) answer["effective"] = config_file::print_effective(*loaded);
    print_json("penstock.check-config/1", answer);
    return exit_ok;
  }
  tell_warnings(*loaded);
  if (o.explain) print(config_file::explain());
  if (o.effective) print(config_file::print_effective(*loaded));
  if (!o.explain && !o.effective) {
    say(o.source.file + ": ok" +
        (loaded->warnings.empty() ? "" : ", " + config_file::summary_of(loaded->warnings)));
  }
  return exit_ok;
}

}  // namespace

void add_config_commands(verb_table& verbs) {
  const auto o = std::make_shared<check_options>();
  CLI::App& check = verbs.add(
      {"check-config",
       verb_group::look,
       "check a config file for mistakes",
       "Reports all mistakes at once, with file, line and column. Exit code 78 if there are any. Problems of this machine are only "
       "warnings, because a config may be checked on a machine that does not run it: missing data, a folder without files of its type, "
       "missing or unreadable shards, members that the first samples of tar shards lack, a missing worker program, a missing file with a "
       "secret.",
       {{"penstock check-config photos.toml", "exit code 0 if there is no mistake"},
        {"penstock check-config photos.toml --print-effective", "print all values and where they come from"},
        {"penstock check-config photos.toml --explain",
         "print which actor each table configures, and what each key does"}}},
      [o] { return check_config(*o); });
  add_config_options(check, o->source);
  check.add_flag("--print-effective", o->effective, "print every value and where it comes from, as TOML");
  check.add_flag("--explain", o->explain, "print which actor each table configures, and what each key does");
  check.add_flag("--strict", o->source.strict, "treat warnings as errors");
  check.add_flag("--json", o->json, "print diagnostics as JSON, with other requested output as a string");

  const auto as_json = std::make_shared<bool>(false);
  verbs
      .add({"schema",
            verb_group::look,
            "print the JSON Schema of config files, for editors",
            "Editors with a TOML language server use it to complete and check config files. It is generated "
            "from the same table of keys as the program's own checks.",
            {{"penstock schema > penstock.schema.json", "for an editor's settings"}}},
           [] {
             print(config_file::json_schema());
             return static_cast<int>(exit_ok);
           })
      .add_flag("--json", *as_json, "no effect: a schema is JSON");
}

}  // namespace penstock::cli
