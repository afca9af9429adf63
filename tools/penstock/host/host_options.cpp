#include "tools/penstock/host/host_options.hpp"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cstdlib>

namespace penstock::cli {

result<string_map> folders_of(const std::vector<std::string>& data) {
  string_map folders;
  for (const std::string& one : data) {
    const std::size_t equals = one.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == one.size())
      return refuse(errc::usage, "--data '{}': must be FROM=TO, a folder of the session and the same folder here", one);
    folders[one.substr(0, equals)] = one.substr(equals + 1);
  }
  return folders;
}

CLI::Option* dataset_program_option::add_to(CLI::App& verb) {
  auto* const program =
      verb.add_option("--program", file, "this machine's copy of the worker program of \"custom\" datasets ([loader] command), which is run for any session")
          ->type_name("FILE");
  verb.add_option("--program-argument", arguments, "an argument of --program (may be repeated): as in [loader] command, but with the paths of this machine")
      ->type_name("ARGUMENT")
      ->needs(program);
  return program;
}

std::vector<std::string> dataset_program_option::command() const {
  std::vector<std::string> all;
  if (!file.empty()) all.push_back(file);
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

jobs_program program_of_environment() {
  const char* const text = std::getenv("PENSTOCK_HOST_PROGRAM");  // NOLINT(concurrency-mt-unsafe): no thread has started
  if (text == nullptr) return {};
  const auto said = nlohmann::json::parse(text, nullptr, false);
  try {
    return {said.at("kind"), said.at("command"), said.at("environment"), said.at("facts")};
  } catch (const nlohmann::json::exception&) {
    return {};  // the variable was not set by our package
  }
}

}  // namespace penstock::cli
