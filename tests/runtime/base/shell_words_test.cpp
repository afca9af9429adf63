#include "runtime/base/shell_words.hpp"

#include <catch2/catch_test_macros.hpp>

#include <array>

using namespace penstock;

TEST_CASE("words are quoted so that a shell reads them back unchanged") {
  const std::array<std::string, 6> words{"gzip", "-9", "a b", "", "it's", "$HOME"};
  CHECK(shell_words(words) == R"(gzip -9 'a b' '' 'it'\''s' '$HOME')");
}
