// Work on many files whose storage is far away. Used by the session while it lists a dataset.
#pragma once

#include "runtime/base/result.hpp"

#include <cstddef>
#include <functional>

namespace penstock {

/// Enough requests at a time that their latency does not add up.
inline constexpr unsigned requests_at_once = 64;

/// work(i) for all i < count, on as many threads; on this one if that is 1. None starts after a refusal. Returns the
/// refusal with the lowest i.
result<void> in_parallel(std::size_t count, unsigned threads, const std::function<result<void>(std::size_t)>& work);

}  // namespace penstock
