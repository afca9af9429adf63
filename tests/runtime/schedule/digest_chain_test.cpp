#include "runtime/schedule/digest_chain.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fmt/core.h>

#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

using penstock::schedule::digest_chain;

namespace {

std::string in_one_piece(const std::vector<std::uint64_t>& digests) {
  const XXH128_hash_t hash = XXH3_128bits(digests.data(), digests.size() * sizeof(std::uint64_t));
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::uint64_t digest_of(std::uint64_t number) {
  return (number + 1) * 0x9E37'79B9'7F4A'7C15U ^ (number << 7U);
}

}  // namespace

TEST_CASE("after every batch a chained digest equals the digest of the whole") {
  std::vector<std::uint64_t> all;
  digest_chain chain;
  CHECK(chain.hex() == in_one_piece(all));
  for (std::uint64_t i = 0; i < 3000; ++i) {
    all.push_back(digest_of(i));
    chain.add(all.back());
    if (chain.hex() != in_one_piece(all)) FAIL("after " << i + 1 << " digests");
  }
  CHECK(chain.count() == 3000);
}

TEST_CASE("a chain that is saved and restored after any batch reaches the same digest") {
  std::vector<std::uint64_t> all;
  for (std::uint64_t i = 0; i < 400; ++i) all.push_back(digest_of(i));
  const std::string whole = in_one_piece(all);
  for (std::size_t saved = 0; saved <= all.size(); ++saved) {
    digest_chain before;
    for (std::size_t i = 0; i < saved; ++i) before.add(all[i]);
    REQUIRE(before.words_kept().size() == digest_chain::words_kept_after(saved));
    auto after = digest_chain::restore(before.count(), before.accumulators(), before.words_kept());
    REQUIRE(after);
    CHECK(*after == before);
    for (std::size_t i = saved; i < all.size(); ++i) after->add(all[i]);
    if (after->hex() != whole) FAIL("saved after " << saved << " digests");
  }
}

TEST_CASE("a chain is not restored from too many or too few words for its count") {
  const digest_chain none;
  const std::vector<std::uint64_t> words(9);
  CHECK_FALSE(digest_chain::restore(8, none.accumulators(), words));
  CHECK(digest_chain::restore(9, none.accumulators(), words));
  CHECK_FALSE(digest_chain::restore(34, none.accumulators(), words));
  CHECK(digest_chain::restore(33, none.accumulators(), words));
}
