// The fast conversion of tokens, compared with a plain loop.
#include "runtime/dataset/tokens/widen.hpp"

#include <catch2/catch_test_macros.hpp>

#include <random>
#include <type_traits>
#include <vector>

using namespace penstock;

namespace {

/// Ids as large as a file's token type allows, at any alignment, with guards on both sides.
template <class Token, class Id>
void compare(std::mt19937_64& draw) {
  using number = std::conditional_t<(sizeof(Token) < 4), std::uint32_t, std::make_unsigned_t<Token>>;
  constexpr Id guard = -7;
  constexpr std::size_t guards = 40;
  const std::size_t count = draw() % 4 == 0 ? draw() % 40 : 1000 + draw() % 200;
  std::vector<Token> from(count + 1);
  for (Token& token : from) token = static_cast<Token>(draw());
  std::vector<Id> tokens(count + 2 * guards, guard);
  std::vector<Id> targets(count + 2 * guards, guard);
  std::vector<Id> tokens_wanted = tokens;
  std::vector<Id> targets_wanted = targets;
  const std::size_t at = draw() % guards;
  const std::size_t targets_at = draw() % 2 == 0 ? at : draw() % guards;
  const auto highest = widen_fast<number>(from.data(), tokens.data() + at, targets.data() + targets_at, count);
  auto highest_wanted = static_cast<number>(from[count]);
  for (std::size_t i = 0; i < count; ++i) {
    tokens_wanted[at + i] = static_cast<Id>(from[i]);
    targets_wanted[targets_at + i] = static_cast<Id>(from[i + 1]);
    highest_wanted = std::max(highest_wanted, static_cast<number>(from[i]));
  }
  REQUIRE(highest == highest_wanted);
  REQUIRE(tokens == tokens_wanted);
  REQUIRE(targets == targets_wanted);
}

}  // namespace

TEST_CASE("tokens of every type become the same ids at every alignment, and no byte around them is written") {
  std::mt19937_64 draw(4096);
  for (int i = 0; i < 500; ++i) {
    compare<std::uint8_t, std::int32_t>(draw);
    compare<std::int8_t, std::int32_t>(draw);
    compare<std::uint16_t, std::int32_t>(draw);
    compare<std::int16_t, std::int32_t>(draw);
    compare<std::uint32_t, std::int32_t>(draw);
    compare<std::int32_t, std::int32_t>(draw);
    compare<std::uint64_t, std::int32_t>(draw);
    compare<std::uint16_t, std::int64_t>(draw);
    compare<std::int64_t, std::int64_t>(draw);
  }
}
