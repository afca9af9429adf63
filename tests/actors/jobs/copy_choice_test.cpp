#include "actors/jobs/copy_choice.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace std::chrono_literals;
using jobs::copy_choice;

namespace {

constexpr std::size_t megabyte = 1'000'000;

/// Makes `copies` copies that take these times. Returns how many of them were streaming.
int streaming_of(copy_choice& choice, int copies, nanoseconds plain, nanoseconds streaming) {
  int found = 0;
  for (int i = 0; i < copies; ++i) {
    const copy_choice::way how = choice.next();
    const bool streams = how == copy_choice::way::streaming;
    found += streams ? 1 : 0;
    choice.took(how, megabyte, streams ? streaming : plain);
  }
  return found;
}

}  // namespace

TEST_CASE("arguments are copied plainly while that takes about as long as streaming") {
  copy_choice choice;
  CHECK(streaming_of(choice, 640, 70us, 60us) <= 11);
}

TEST_CASE(
    "arguments are streamed while plain copies are slow, and a plain copy is still tried now and then") {
  copy_choice choice;
  const int streaming = streaming_of(choice, 640, 290us, 60us);
  CHECK(streaming >= 628);
  CHECK(streaming < 640);
}

TEST_CASE("one slow copy affects the choice only until the next retry") {
  copy_choice choice;
  choice.took(choice.next(), megabyte, 900us);  // plain, because the pages of a new slot are touched first
  streaming_of(choice, 64, 70us, 60us);
  CHECK(streaming_of(choice, 640, 70us, 60us) <= 11);
}

TEST_CASE("the choice adapts when threads move to other cores and back") {
  copy_choice choice;
  streaming_of(choice, 1000, 70us, 60us);
  CHECK(streaming_of(choice, 640, 290us, 60us) >= 620);
  streaming_of(choice, 640, 70us, 60us);
  CHECK(streaming_of(choice, 640, 70us, 60us) <= 11);
}
