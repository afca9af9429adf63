// Completion scripts for shells, generated from the table of verbs. For words known only at run time
// (targets, sessions, keys) the scripts call `penstock completion --words`.
#include "tools/penstock/help/help_text.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>

namespace penstock::cli {
namespace {

/// How to complete a value.
enum class value_kind : unsigned char { words, files, folders, asked, assignment, anything };

struct value_source {
  value_kind kind = value_kind::anything;
  std::string words;  // words: separated by blanks; asked: the argument of --words
};

value_source source_of(const option_facts& o) {
  const std::string& value = o.positional ? o.names : o.value;
  if (o.value.find('|') != std::string::npos) {
    std::string words = o.value;
    std::ranges::replace(words, '|', ' ');
    return {value_kind::words, words};
  }
  static constexpr std::array<std::string_view, 7> files{"FILE", "PATH",    "PNG", "IN",
                                                         "OUT",  "JOURNAL", "LOG"};
  if (std::ranges::find(files, value) != files.end() || o.names == "--out") return {value_kind::files, {}};
  if (value == "DIR") return {value_kind::folders, {}};
  if (value == "TARGET") return {value_kind::asked, "targets"};
  if (value == "VERB") return {value_kind::asked, "verbs"};
  if (o.names == "--session") return {value_kind::asked, "sessions"};
  if (value == "KEY=VALUE") return {value_kind::assignment, {}};
  return {};
}

/// Splits "-f,--follow".
std::vector<std::string> names_of(const option_facts& o) {
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin < o.names.size();) {
    const std::size_t end = std::min(o.names.find(',', begin), o.names.size());
    names.push_back(o.names.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

/// Quotes text for use between single quotes in a shell.
std::string shell_quoted(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out;
}

// ---- bash

constexpr const char* no_completion = "COMPREPLY=()";

std::string bash_values(const value_source& from) {
  switch (from.kind) {
    case value_kind::words: return "_penstock_of '" + from.words + "'";
    case value_kind::files: return "_penstock_files -f";
    case value_kind::folders: return "_penstock_files -d";
    case value_kind::asked: return "_penstock_of \"$(_penstock_asked " + from.words + ")\"";
    case value_kind::assignment: return "_penstock_set";
    case value_kind::anything: break;
  }
  return no_completion;
}

std::string bash(const verb_table& table) {
  std::string verbs;
  std::string values;
  std::string rest;
  for (const auto& verb : table.verbs()) {
    const std::string& name = verb->facts.name;
    verbs += (verbs.empty() ? "" : " ") + name;
    std::string options;
    std::string positional = no_completion;
    for (const option_facts& o : options_of(*verb->parser)) {
      if (o.positional) {
        // The script cannot know which positional is being typed; assume the first that can be completed.
        if (const value_source from = source_of(o);
            positional == no_completion && from.kind != value_kind::anything)
          positional = bash_values(from);
        continue;
      }
      for (const std::string& one : names_of(o)) {
        options += (options.empty() ? "" : " ") + one;
        if (!o.value.empty())
          values += fmt::format("    '{} {}') {}; return ;;\n", name, one, bash_values(source_of(o)));
      }
    }
    rest += fmt::format("    {}) if [[ $cur == -* ]]; then _penstock_of '{}'; else {}; fi ;;\n", name,
                        options, positional);
  }
  return "# bash completion of penstock; generated: penstock completion bash\n"
         "_penstock_of() { COMPREPLY=($(compgen -W \"$1\" -- \"$cur\")); }\n"
         "# Names may contain blanks: one per line.\n"
         "_penstock_files() { compopt -o filenames; mapfile -t COMPREPLY < <(compgen $1 -- \"$cur\"); }\n"
         "_penstock_asked() { \"${COMP_WORDS[0]}\" completion --words \"$1\" 2>/dev/null; }\n"
         "# --set KEY=VALUE: the key, and after the = its possible values.\n"
         "_penstock_set() {\n"
         "  if [[ $cur == *=* ]]; then\n"
         "    local key=${cur%%=*}\n"
         "    COMPREPLY=($(compgen -P \"$key=\" -W \"$(_penstock_asked \"values:$key\")\" -- "
         "\"${cur#*=}\"))\n"
         "  else\n"
         "    compopt -o nospace\n"
         "    _penstock_of \"$(_penstock_asked keys)\"\n"
         "  fi\n"
         "}\n"
         "_penstock() {\n"
         "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]}\n"
         "  # --option=value arrives as three words.\n"
         "  local at=$((COMP_CWORD - 1))\n"
         "  [[ $cur == = ]] && cur='' at=$COMP_CWORD\n"
         "  if [[ ${COMP_WORDS[at]} == = ]]; then\n"
         "    prev=${COMP_WORDS[at-1]}\n"
         "    if [[ $prev != -* ]]; then  # --set KEY = VALUE\n"
         "      _penstock_of \"$(_penstock_asked \"values:$prev\")\"\n"
         "      return\n"
         "    fi\n"
         "  fi\n"
         "  COMPREPLY=()\n"
         "  if ((COMP_CWORD == 1)); then _penstock_of '" +
         verbs +
         "'; return; fi\n"
         "  case \"$verb $prev\" in\n" +
         values +
         "  esac\n"
         "  case $verb in\n" +
         rest +
         "  esac\n"
         "}\n"
         "complete -F _penstock penstock\n";
}

// ---- zsh

std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return shell_quoted(out);
}

std::string zsh_values(const value_source& from) {
  switch (from.kind) {
    case value_kind::words: return "(" + from.words + ")";
    case value_kind::files: return "_files";
    case value_kind::folders: return "_files -/";
    case value_kind::asked:
      return fmt::format("{{compadd -- ${{(f)\"$(penstock completion --words {} 2>/dev/null)\"}}}}",
                         from.words);
    case value_kind::assignment: return "_penstock_set";
    case value_kind::anything: break;
  }
  return "";
}

std::string zsh(const verb_table& table) {
  std::string verbs;
  std::string cases;
  for (const auto& verb : table.verbs()) {
    verbs += fmt::format("    '{}:{}'\n", verb->facts.name, zsh_text(verb->facts.summary));
    std::string specs;
    for (const option_facts& o : options_of(*verb->parser)) {
      if (o.positional) {
        specs +=
            fmt::format(" '{}:{}:{}'", o.repeats ? "*" : "1", zsh_text(o.names), zsh_values(source_of(o)));
        continue;
      }
      for (const std::string& one : names_of(o)) {
        specs += fmt::format(" '{}{}[{}]{}'", one,
                             o.value.empty()         ? ""
                             : one.starts_with("--") ? "="
                                                     : "+",
                             zsh_text(o.help),
                             o.value.empty() ? "" : ":" + zsh_text(o.value) + ":" + zsh_values(source_of(o)));
      }
    }
    cases += fmt::format("    {}) _arguments{} ;;\n", verb->facts.name, specs);
  }
  return "#compdef penstock\n# zsh completion of penstock; generated: penstock completion zsh\n"
         "_penstock_set() {\n"
         "  if compset -P '*='; then\n"
         "    compadd -- ${(f)\"$(penstock completion --words values:${IPREFIX%=} 2>/dev/null)\"}\n"
         "  else\n"
         "    compadd -S '' -- ${(f)\"$(penstock completion --words keys 2>/dev/null)\"}\n"
         "  fi\n"
         "}\n"
         "_penstock() {\n"
         "  local -a verbs\n"
         "  verbs=(\n" +
         verbs +
         "  )\n"
         "  if ((CURRENT == 2)); then _describe verb verbs; return; fi\n"
         "  local verb=$words[2]\n"
         "  shift words\n"
         "  ((CURRENT--))\n"
         "  case $verb in\n" +
         cases +
         "  esac\n"
         "}\n"
         "compdef _penstock penstock\n";
}

// ---- fish

std::string fish(const verb_table& table) {
  std::string out =
      "# fish completion of penstock; generated: penstock completion fish\ncomplete -c penstock -f\n"
      "function __penstock_set\n"
      "  set -l token (string replace -r '^--set=' '' -- (commandline -ct))\n"
      "  if string match -q '*=*' -- $token\n"
      "    set -l key (string split -m 1 = -- $token)[1]\n"
      "    for value in (penstock completion --words values:$key 2>/dev/null)\n"
      "      echo $key=$value\n"
      "    end\n"
      "  else\n"
      "    penstock completion --words keys 2>/dev/null\n"
      "  end\n"
      "end\n";
  for (const auto& verb : table.verbs()) {
    const std::string& name = verb->facts.name;
    out += fmt::format("complete -c penstock -n __fish_use_subcommand -a {} -d '{}'\n", name,
                       shell_quoted(verb->facts.summary));
    for (const option_facts& o : options_of(*verb->parser)) {
      std::string line = fmt::format("complete -c penstock -n '__fish_seen_subcommand_from {}'", name);
      if (!o.positional) {
        for (const std::string& one : names_of(o))
          line += one.starts_with("--") ? " -l " + one.substr(2) : " -s " + one.substr(1);
        line += fmt::format(" -d '{}'", shell_quoted(o.help));
      }
      const value_source from = source_of(o);
      const bool takes_value = o.positional || !o.value.empty();
      switch (from.kind) {
        case value_kind::words: line += " -x -a '" + from.words + "'"; break;
        case value_kind::asked:
          line += fmt::format(" -x -a '(penstock completion --words {} 2>/dev/null)'", from.words);
          break;
        case value_kind::assignment: line += " -x -a '(__penstock_set)'"; break;
        case value_kind::files: line += " -r -F"; break;
        case value_kind::folders: line += " -x -a '(__fish_complete_directories)'"; break;
        case value_kind::anything: line += takes_value && !o.positional ? " -x" : ""; break;
      }
      if (o.positional && from.kind == value_kind::anything) continue;
      out += line + "\n";
    }
  }
  return out;
}

}  // namespace

std::string completion_script(const verb_table& table, const std::string& shell) {
  if (shell == "bash") return bash(table);
  if (shell == "zsh") return zsh(table);
  if (shell == "fish") return fish(table);
  return {};
}

}  // namespace penstock::cli
