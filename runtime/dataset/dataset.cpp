// The parts of penstock::Dataset that need not be overridden.
#include <penstock/dataset.hpp>

#include <fmt/core.h>

namespace penstock {

Dataset::~Dataset() = default;

void Dataset::setup(const worker_context&) {}

std::string Dataset::name_of(std::uint64_t index) const {
  return fmt::format("sample {}", index);
}

transient_error::~transient_error() = default;

}  // namespace penstock
