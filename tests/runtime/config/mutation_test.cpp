// Ten thousand typing errors: one character of a valid file is replaced, removed or added. PENSTOCK_SEED selects errors other than the
// default.
#include "runtime/config/toml_scan.hpp"
#include "support.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cstdlib>
#include <random>

using namespace penstock;
using namespace penstock::config_file;
using namespace penstock::config_file::testing;

namespace {

#ifdef __SANITIZE_ADDRESS__  // each load takes five times as long there
constexpr std::size_t mutations = 2'500;
#else
constexpr std::size_t mutations = 10'000;
#endif

struct mutation {
  std::string text;
  std::size_t at = 0;
  char before = '\0';  ///< '\0': added
  char after = '\0';   ///< '\0': left out
};

class mutator {
 public:
  explicit mutator(std::uint64_t seed) : random_(seed) {}

  mutation of(const std::string& text) {
    mutation made{text, below(text.size()), '\0', '\0'};
    const std::size_t kind = below(3);
    if (kind != 0) made.before = text[made.at];
    if (kind != 1) made.after = character();
    made.text.replace(made.at, kind == 0 ? 0 : 1, kind == 1 ? 0 : 1, made.after);
    return made;
  }
  std::size_t below(std::size_t limit) {
    return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random_);
  }

 private:
  char character() {
    // Half of these characters have a meaning in TOML or in our values; the rest are arbitrary bytes.
    constexpr std::string_view special = "\"'[]{}=.,#\n\r\t \\$-_:0123456789eEinf";
    return below(2) == 0 ? special[below(special.size())] : static_cast<char>(below(256));
  }

  std::mt19937_64 random_;
};

std::uint64_t chosen_seed() {
  const char* const set = std::getenv("PENSTOCK_SEED");
  return set != nullptr ? std::strtoull(set, nullptr, 10) : 20240229;
}

/// The key whose name contains the change; null if no name does.
const key_place* key_hit(const toml_keys& keys, const mutation& change) {
  for (const key_place& key : keys.keys) {
    const bool added = change.before == '\0';
    if (change.at < key.end && (added ? change.at > key.begin : change.at >= key.begin)) return &key;
  }
  return nullptr;
}

/// The keys of a text that may start with a byte order mark.
toml_keys keys_of(std::string text) {
  if (text.starts_with("\xef\xbb\xbf")) text.replace(0, 3, "   ");
  return scan_keys(text);
}

bool inside_a_statement(const toml_keys& keys, std::size_t at) {
  for (const key_place& key : keys.keys) {
    if (at >= key.statement_begin && at <= key.statement_end) return true;
  }
  return false;
}

bool is_sound(const rejection& refused) {
  if (refused.diagnostics.empty()) return false;
  bool has_error = false;
  for (const diagnostic& one : refused.diagnostics) {
    has_error = has_error || one.level == severity::error;
    if (one.message.empty() || one.where.origin.empty()) return false;
  }
  return has_error && !render(refused.diagnostics, colour::on).empty() &&
         !to_json(refused.diagnostics).empty();
}

}  // namespace

TEST_CASE("a changed character is refused, harmless, or a legitimate change of a value") {
  const std::uint64_t seed = chosen_seed();
  WARN("PENSTOCK_SEED=" << seed);
  mutator mutate(seed);

  const temporary_folder folder;
  std::filesystem::copy(PENSTOCK_CONFIG_CORPUS "/good", folder.path(),
                        std::filesystem::copy_options::recursive);
  struct original {
    corpus_file file;
    std::string text;
    penstock::config values;
  };
  std::vector<corpus_file> files = corpus("good");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(PENSTOCK_EXAMPLES)) {
    if (entry.path().extension() != ".toml") continue;
    corpus_file file;
    file.name = "example-" + entry.path().filename().string();
    std::filesystem::copy_file(entry.path(), folder.path() / file.name);
    file.request.file = file.name;
    files.push_back(std::move(file));
  }
  std::vector<original> originals;
  for (corpus_file& file : files) {
    file.request.working_folder = folder.path();
    const loading loaded = load(file.request);
    REQUIRE(loaded.has_value());
    std::string text = read_text(folder.path() / file.name);
    originals.push_back({std::move(file), std::move(text), loaded->values});
  }
  std::size_t refused = 0;
  std::size_t changed = 0;
  for (std::size_t i = 0; i < mutations; ++i) {
    const auto& [file, text, values] = originals[i % originals.size()];
    const mutation change = mutate.of(text);
    folder.write(file.name, change.text);
    const loading result = load(file.request);
    if (!result) {
      ++refused;
      if (!is_sound(result.error())) FAIL(file.name << " at byte " << change.at << ":\n" << change.text);
      continue;
    }
    if (result->values == values) continue;
    ++changed;
    const toml_keys keys = keys_of(text);
    const bool comment_or_line =
        change.before == '#' || change.after == '#' || change.before == '\n' || change.after == '\n';
    // A misspelt key must not silently leave its value at the default: if the load succeeds, there is still a
    // known key at this place, because unknown keys are refused.
    if (const key_place* const hit = key_hit(keys, change); hit != nullptr && !comment_or_line) {
      const toml_keys after = keys_of(change.text);
      // In a table with arbitrary keys, replacing the key's first character by a space leaves a valid shorter key.
      bool still_a_key = false;
      for (const key_place& key : after.keys)
        still_a_key = still_a_key || key.begin == hit->begin || key.begin == hit->begin + 1;
      if (!still_a_key) FAIL(file.name << ": a key vanished at byte " << change.at << ":\n" << change.text);
    }
    // Between statements, only characters that begin or end a comment have a meaning.
    if (!comment_or_line && !inside_a_statement(keys, change.at)) {
      FAIL(file.name << ": a change between statements, at byte " << change.at << ", changed the config:\n"
                     << change.text);
    }
  }
  CHECK(refused > mutations / 4);
  CHECK(changed > 0);
}
