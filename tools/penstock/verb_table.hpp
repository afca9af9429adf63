// The table of verbs: names, descriptions, options and examples. Parsing, `penstock help`, the man page and
// shell completion all use it. Every file with a verb adds to the table; main.cpp runs it.
//
// To add a verb: write a function `void add_frobnicate_command(verb_table& verbs)` in its own file, declare
// it in commands.hpp and call it in main.cpp. Options are CLI11's.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace penstock::cli {

/// The section of help that lists a verb.
enum class verb_group : unsigned char { run, operate, look, shell };

struct verb_example {
  std::string command;
  std::string what;
};

struct verb_facts {
  std::string name;
  verb_group group = verb_group::operate;
  std::string summary;  ///< one line, no full stop
  std::string text;     ///< the details; paragraphs are separated by an empty line
  std::vector<verb_example> examples;
};

class verb_table {
 public:
  using action = std::function<int()>;  ///< returns the exit code

  verb_table();
  verb_table(const verb_table&) = delete;
  verb_table& operator=(const verb_table&) = delete;

  /// Adds a verb and returns its parser, for its options. `act` is called after parsing.
  CLI::App& add(verb_facts facts, action act);

  /// Parses and runs. Returns the exit code; prints usage errors itself, as JSON if the arguments contain
  /// --json.
  int run(int argc, char** argv);

  struct entry {
    verb_facts facts;
    CLI::App* parser = nullptr;  ///< its options
  };
  /// The verbs, in the order in which they were added.
  [[nodiscard]] const std::vector<std::unique_ptr<entry>>& verbs() const noexcept { return verbs_; }
  [[nodiscard]] const entry* find(const std::string& name) const;

  // For functions that add to a plain CLI11 parser.
  [[nodiscard]] CLI::App& parser() noexcept { return app_; }
  [[nodiscard]] action& chosen() noexcept { return chosen_; }

 private:
  int tell_usage_error(const CLI::ParseError& e, const std::vector<std::string>& arguments) const;

  CLI::App app_;
  action chosen_;
  std::vector<std::unique_ptr<entry>> verbs_;
};

[[nodiscard]] const char* title_of(verb_group group) noexcept;

/// The error for an unknown verb, with the verb that the user probably meant.
[[nodiscard]] std::string no_such_verb(const verb_table& table, const std::string& word);

/// An option or positional argument of a verb, as help describes it.
struct option_facts {
  std::string names;  ///< "--session", "-f,--follow"; for a positional its name
  std::string value;  ///< "NAME", or its possible values: "ready|finished"; empty for flags
  std::string help;
  bool positional = false;
  bool required = false;
  bool repeats = false;
};
[[nodiscard]] std::vector<option_facts> options_of(const CLI::App& verb);
/// "penstock logs TARGET [OPTIONS]".
[[nodiscard]] std::string synopsis_of(const verb_table::entry& verb);

struct exit_code_facts {
  int code;
  const char* meaning;
};
[[nodiscard]] const std::vector<exit_code_facts>& exit_codes();

}  // namespace penstock::cli
