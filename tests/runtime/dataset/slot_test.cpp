// sample_slot and batch_slot, the memory that a dataset writes to: typed access is checked.
#include <penstock/dataset.hpp>
#include <penstock/error.hpp>

#include <catch2/catch_test_macros.hpp>

#include <array>
#include <string>

using namespace penstock;

namespace {

template <class Step>
std::string refusal(Step step) {
  try {
    step();
    return {};
  } catch (const error& e) {
    return e.code() == errc::usage ? e.what() : "not a usage error";
  }
}

}  // namespace

TEST_CASE("access to a missing tensor, or as another element type, is refused with its name") {
  alignas(16) std::array<std::byte, 12> xyz{};
  alignas(16) std::array<std::byte, 8> label{};
  const std::array<std::span<std::byte>, 2> tensors{xyz, label};
  const std::array<tensor_spec, 2> specs{tensor_spec{"xyz", dtype::float32, {3}},
                                         tensor_spec{"label", dtype::int64, {}}};
  const sample_slot slot(tensors, {}, specs);
  CHECK(slot.as<float>(0).size() == 3);
  CHECK(slot.as<std::int64_t>(1).size() == 1);
  CHECK(refusal([&] { static_cast<void>(slot.as<double>(0)); }) ==
        "tensor 'xyz' is float32, but the program accesses it as float64");
  CHECK(refusal([&] { static_cast<void>(slot.bytes(2)); }) ==
        "there is no tensor 2: describe() declares 2, counted from 0");

  const std::array<std::span<const std::int64_t>, 2> lengths{};
  const std::array<std::uint64_t, 1> samples{7};
  const batch_slot batch(tensors, lengths, samples, specs);
  CHECK(batch.as<float>(0).size() == 3);
  CHECK(refusal([&] { static_cast<void>(batch.as<std::int32_t>(0)); }) ==
        "tensor 'xyz' is float32, but the program accesses it as int32");
}
