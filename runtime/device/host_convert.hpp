// A conversion step on the host: converts rows of uint8 pixels to the image's element type and layout, mirrored if the
// batch says so. In plain C++ and for AVX2, with identical results. Used by the host device; a test compares the two.
#pragma once

#include "runtime/device/transfer_plan.hpp"

#include <cstddef>
#include <cstdint>

namespace penstock::device {

/// Reads `rows` rows from the slot, converts them, and writes them to the buffer. Throws only std::bad_alloc.
using host_conversion = void (*)(const convert_step& step, const std::byte* slot, std::byte* buffer,
                                 std::uint32_t rows);

void convert_portably(const convert_step& step, const std::byte* slot, std::byte* buffer, std::uint32_t rows);

/// The fastest conversion that this processor supports.
host_conversion best_conversion() noexcept;

}  // namespace penstock::device
