// How many axes the shape of a sample may have. Used by the rules of configs, the index of a dataset and the .npy reader.
#pragma once

#include <cstddef>

namespace penstock {

/// NumPy's NPY_MAXDIMS before version 2.
inline constexpr std::size_t shape_axes_max = 32;

}  // namespace penstock
