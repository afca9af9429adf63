// help, completion and version: information about the program itself.
#include "runtime/base/text.hpp"
#include "runtime/config/key_table.hpp"
#include "runtime/config/wording.hpp"
#include "runtime/control/control_client.hpp"
#include "runtime/control/socket_place.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/help/help_text.hpp"
#include "tools/penstock/output.hpp"
#include "tools/penstock/verb_table.hpp"

#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>

namespace penstock::cli {
namespace {

using json = nlohmann::ordered_json;

constexpr std::chrono::milliseconds completion_deadline{300};  // completion with Tab must not take longer

struct help_options {
  std::string verb;
  bool man = false;
  bool as_json = false;
};

json as_json(const verb_table& table) {
  json verbs = json::array();
  for (const auto& v : table.verbs()) {
    json options = json::array();
    for (const option_facts& o : options_of(*v->parser)) {
      options.push_back({{"names", o.names},
                         {"value", o.value},
                         {"help", o.help},
                         {"positional", o.positional},
                         {"required", o.required}});
    }
    json examples = json::array();
    for (const verb_example& e : v->facts.examples)
      examples.push_back({{"command", e.command}, {"what", e.what}});
    verbs.push_back({{"verb", v->facts.name},
                     {"group", title_of(v->facts.group)},
                     {"summary", v->facts.summary},
                     {"synopsis", synopsis_of(*v)},
                     {"text", v->facts.text},
                     {"options", std::move(options)},
                     {"examples", std::move(examples)}});
  }
  json codes = json::array();
  for (const exit_code_facts& e : exit_codes()) codes.push_back({{"code", e.code}, {"meaning", e.meaning}});
  return {{"schema", "penstock.help/1"}, {"verbs", std::move(verbs)}, {"exit_codes", std::move(codes)}};
}

int help(const verb_table& table, const help_options& o) {
  const bool colours = colours_on(STDOUT_FILENO);
  if (o.man) {
    print_raw(man_page(table, PENSTOCK_VERSION));
    return exit_ok;
  }
  if (o.as_json && o.verb.empty()) {
    print_json(as_json(table));
    return exit_ok;
  }
  const verb_table::entry* verb = table.find(o.verb);
  const bool coloured = colours && !o.as_json;
  const std::string text = o.verb.empty()    ? help_of_all(table, coloured)
                           : verb != nullptr ? help_of_verb(*verb, coloured)
                                             : help_of_topic(o.verb, coloured);
  if (text.empty()) {
    return refuse_with(exit_usage, {errc::usage, no_such_verb(table, o.verb), 0}, o.as_json);
  }
  if (o.as_json) {
    print_json("penstock.help-text/1", {{"help", text}});
  } else {
    print_raw(text);
  }
  return exit_ok;
}

// ---- completion

void say_words(const std::vector<std::string>& words) {
  for (const std::string& w : words) print(w);
}

/// Never reports errors: at worst there is nothing to complete.
std::vector<std::string> targets_of_live_sessions() {
  std::vector<std::string> words{"workers", "gpu", "scheduler", "all"};
  for (const auto& s : control::find_sessions()) {
    if (!s.alive) continue;
    const auto answer = control::ask(s.path, {{"verb", "status"}}, completion_deadline);
    if (!answer || !answer->value("ok", false)) continue;
    for (const json& w : answer->at("result").at("workers")) words.push_back("worker/" + w.at("id").dump());
  }
  return words;
}

/// The possible values of a config key, if they are a list.
std::vector<std::string> values_of_key(const std::string& path) {
  const auto& keys = config_file::key_table::get().keys();
  const auto key = std::ranges::find(keys, path, &config_file::key_info::path);
  if (key == keys.end()) return {};
  std::vector<std::string> all;
  if (key->form.element == config_file::scalar::choice || key->form.count == config_file::arity::list_or_word) {
    for (const std::string_view choice : config_file::choices_of(*key)) all.emplace_back(choice);
  }
  if (key->form.element == config_file::scalar::boolean) all = {"true", "false"};
  if (key->form.count == config_file::arity::optional) all.emplace_back("auto");
  return all;
}

int words(const verb_table& table, const std::string& kind) {
  std::vector<std::string> all;
  if (kind == "targets") all = targets_of_live_sessions();
  if (kind == "sessions") {
    for (const auto& s : control::find_sessions()) {
      if (s.alive) all.push_back(s.name);
    }
  }
  if (kind == "verbs") {
    for (const auto& v : table.verbs()) all.push_back(v->facts.name);
    all.insert(all.end(), {"targets", "exit-codes"});
  }
  if (kind == "keys") {
    for (const config_file::key_info& key : config_file::key_table::get().keys())
      all.push_back(key.path + "=");
  }
  if (constexpr std::string_view of = "values:"; kind.starts_with(of))
    all = values_of_key(kind.substr(of.size()));
  say_words(all);
  return exit_ok;
}

struct completion_options {
  std::string shell;
  std::string words;
  bool as_json = false;
};

int completion(const verb_table& table, const completion_options& o) {
  if (!o.words.empty()) return words(table, o.words);
  if (o.shell.empty()) {
    return refuse_with(exit_usage, {errc::usage, "SHELL is missing: penstock completion bash, zsh or fish", 0}, o.as_json);
  }
  const std::string script = completion_script(table, o.shell);
  if (script.empty()) {
    return refuse_with(
        exit_usage,
        {errc::usage, fmt::format("no completion for '{}'; choose bash, zsh or fish", printable(o.shell)), 0},
        o.as_json);
  }
  if (o.as_json) {
    print_json("penstock.completion/1", {{"shell", o.shell}, {"script", script}});
  } else {
    print_raw(script);
  }
  return exit_ok;
}

int version(bool as_json) {
  if (as_json) {
    print_json("penstock.version/1", {{"version", PENSTOCK_VERSION}, {"cuda", PENSTOCK_CUDA_BUILT}});
  } else {
    print(fmt::format("penstock {} ({})", PENSTOCK_VERSION,
                      PENSTOCK_CUDA_BUILT ? "CUDA and host device" : "host device only: built without nvcc"));
  }
  return exit_ok;
}

}  // namespace

void add_help_commands(verb_table& verbs) {
  const auto h = std::make_shared<help_options>();
  CLI::App& help_verb =
      verbs.add({"help",
                 verb_group::shell,
                 "explain a verb, with examples",
                 "Other topics: targets, exit-codes.",
                 {{"penstock help run", "all about run"}, {"penstock help targets", "how to name targets"}}},
                [h, &verbs] { return help(verbs, *h); });
  help_verb.add_option("VERB", h->verb, "a verb or a topic");
  help_verb.add_flag("--man", h->man, "print the manual page, penstock(1), as roff");
  help_verb.add_flag("--json", h->as_json, "print the table of verbs as JSON");

  const auto c = std::make_shared<completion_options>();
  CLI::App& completion_verb =
      verbs.add({"completion",
                 verb_group::shell,
                 "print a completion script for a shell",
                 "The script completes verbs, options, targets, live sessions, keys of --set, and files.",
                 {{"source <(penstock completion bash)", "in this shell, or in ~/.bashrc"},
                  {"penstock completion zsh > ~/.zfunc/_penstock", "for zsh, with ~/.zfunc in fpath"},
                  {"penstock completion fish > ~/.config/fish/completions/penstock.fish", "for fish"}}},
                [c, &verbs] { return completion(verbs, *c); });
  completion_verb.add_option("SHELL", c->shell, "bash, zsh or fish");
  completion_verb
      .add_option("--words", c->words, "for the scripts: print targets, sessions, keys, values:KEY or verbs")
      ->type_name("KIND");
  completion_verb.add_flag("--json", c->as_json, "print the script in a JSON object");

  const auto json_wanted = std::make_shared<bool>(false);
  verbs
      .add({"version",
            verb_group::shell,
            "print the version of this build",
            "",
            {{"penstock version --json", "the version, and whether CUDA is built in"}}},
           [json_wanted] { return version(*json_wanted); })
      .add_flag("--json", *json_wanted, "print it as JSON");
}

}  // namespace penstock::cli
