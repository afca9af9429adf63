// The options that `penstock host` and `penstock doctor --host` share.
#pragma once

#include "runtime/base/result.hpp"

#include <penstock/config.hpp>

#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace penstock::cli {

/// Parses the values of `--data FROM=TO`. Refuses (errc::usage) anything else.
result<string_map> folders_of(const std::vector<std::string>& data);

/// `--program FILE --program-argument ARGUMENT ...`: this machine's copy of the worker program of custom datasets.
struct dataset_program_option {
  std::string file;
  std::vector<std::string> arguments;

  /// Returns the option `--program`. This object must outlive the parsing.
  CLI::Option* add_to(CLI::App& verb);
  /// Empty if no program was given.
  [[nodiscard]] std::vector<std::string> command() const;
};

/// What runs jobs and datasets of Python sessions: hosts::own_program.
struct jobs_program {
  std::string kind;
  std::vector<std::string> command;
  string_map environment;
  string_map facts;  ///< versions
};
/// The Python environment that this command belongs to describes the worker program that it can run (python/penstock/_command.py).
jobs_program program_of_environment();

}  // namespace penstock::cli
