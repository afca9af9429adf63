// Shared by the tests of runtime/config: a temporary folder, the corpus with its expectations, and helpers to
// load a text.
#pragma once

#include "runtime/config/diagnostic.hpp"
#include "runtime/config/load.hpp"

#include <filesystem>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::config_file {

/// Lets Catch2 print diagnostics as text.
inline std::ostream& operator<<(std::ostream& out, const diagnostic& what) {
  return out << render({what}, colour::off);
}

namespace testing {

/// A new folder in the system's temporary folder; removed by the destructor.
class temporary_folder {
 public:
  temporary_folder();
  temporary_folder(const temporary_folder&) = delete;
  temporary_folder& operator=(const temporary_folder&) = delete;
  ~temporary_folder();

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  /// Writes a file, with its folders, and returns its path.
  std::filesystem::path write(const std::filesystem::path& name, std::string_view text) const;

 private:
  std::filesystem::path path_;
};

std::string read_text(const std::filesystem::path& file);

using loading = tl::expected<loaded_config, rejection>;

/// Loads `text` as DIR/test.toml with only the given environment and overrides.
loading load_text(const temporary_folder& folder, std::string_view text, environment_list environment = {},
                  std::vector<std::string> overrides = {});
loading load_text(std::string_view text, environment_list environment = {},
                  std::vector<std::string> overrides = {});

/// All diagnostics as text; "loaded" if there are none.
std::string complaints_of(const loading& result);

/// The expectations in the first lines of a corpus file.
struct corpus_file {
  std::string name;
  source_request request;
  bool schema_accepts = false;  ///< if the schema accepts what the program rejects
  struct expectation {
    severity level = severity::error;
    std::string origin;  ///< empty: the corpus file itself
    std::uint32_t line = 0;
    std::uint32_t column = 0;
    std::uint32_t length = 0;
    std::string fragment;  ///< each "message | label"
  };
  std::vector<expectation> expected;
};

/// The files directly in corpus/KIND.
std::vector<corpus_file> corpus(std::string_view kind);

}  // namespace testing
}  // namespace penstock::config_file
