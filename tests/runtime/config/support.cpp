#include "support.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>

namespace penstock::config_file::testing {
namespace {

namespace fs = std::filesystem;

std::uint32_t number(std::string_view text) {
  std::uint32_t value = 0;
  const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || rest != text.data() + text.size()) {
    throw std::runtime_error("not a number in a corpus file: " + std::string(text));
  }
  return value;
}

/// "12:1 6 message | label", "--set:5 3 message", "parts/base.toml:3:5 2 message".
corpus_file::expectation expectation_from(severity level, const std::string& text) {
  corpus_file::expectation made;
  made.level = level;
  std::istringstream words(text);
  std::string place;
  std::string length;
  words >> place >> length;
  made.length = number(length);
  words.get();
  std::getline(words, made.fragment);
  std::vector<std::string> parts;
  std::istringstream places(place);
  for (std::string part; std::getline(places, part, ':');) parts.push_back(part);
  made.column = number(parts.back());
  parts.pop_back();
  const bool has_line = !parts.empty() && parts.back().find_first_not_of("0123456789") == std::string::npos;
  if (has_line) {
    made.line = number(parts.back());
    parts.pop_back();
  }
  if (!parts.empty()) made.origin = parts.front();
  return made;
}

bool begins(const std::string& line, std::string_view prefix, std::string& rest) {
  if (!std::string_view(line).starts_with(prefix)) return false;
  rest = line.substr(prefix.size());
  return true;
}

}  // namespace

temporary_folder::temporary_folder() {
  std::string name = (fs::temp_directory_path() / "penstock-config-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
  path_ = name;
}

temporary_folder::~temporary_folder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

fs::path temporary_folder::write(const fs::path& name, std::string_view text) const {
  const fs::path file = path_ / name;
  fs::create_directories(file.parent_path());
  fs::remove(file);  // ext4 flushes a truncated and rewritten file to disk
  std::ofstream(file, std::ios::binary) << text;
  return file;
}

std::string read_text(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + file.string());
  return {std::istreambuf_iterator<char>(in), {}};
}

loading load_text(const temporary_folder& folder, std::string_view text, environment_list environment,
                  std::vector<std::string> overrides) {
  folder.write("test.toml", text);
  source_request request;
  request.file = "test.toml";
  request.working_folder = folder.path();
  request.environment = std::move(environment);
  for (std::string& one : overrides) request.overrides.push_back({std::move(one), "--set"});
  return load(request);
}

loading load_text(std::string_view text, environment_list environment, std::vector<std::string> overrides) {
  const temporary_folder folder;
  return load_text(folder, text, std::move(environment), std::move(overrides));
}

std::string complaints_of(const loading& result) {
  if (!result) return render(result.error().diagnostics, colour::off);
  return result->warnings.empty() ? "loaded" : render(result->warnings, colour::off);
}

std::vector<corpus_file> corpus(std::string_view kind) {
  const fs::path folder = fs::path(PENSTOCK_CONFIG_CORPUS) / kind;
  std::vector<corpus_file> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    corpus_file file;
    file.name = entry.path().filename().string();
    file.request.file = file.name;
    file.request.working_folder = folder;
    std::istringstream lines(read_text(entry.path()));
    for (std::string line, rest; std::getline(lines, line);) {
      if (begins(line, "# expect: ", rest)) {
        file.expected.push_back(expectation_from(severity::error, rest));
      } else if (begins(line, "# warn: ", rest)) {
        file.expected.push_back(expectation_from(severity::warning, rest));
      } else if (begins(line, "# set: ", rest)) {
        file.request.overrides.push_back({rest, "--set"});
      } else if (begins(line, "# env: ", rest)) {
        const std::size_t equals = rest.find('=');
        file.request.environment.emplace_back(rest.substr(0, equals), rest.substr(equals + 1));
      } else if (begins(line, "# schema: accepts", rest)) {
        file.schema_accepts = true;
      } else if (line == "# strict") {
        file.request.strict = true;
      }
    }
    files.push_back(std::move(file));
  }
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return files;
}

}  // namespace penstock::config_file::testing
