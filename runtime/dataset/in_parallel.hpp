// Work on many files whose storage is far away. Used by the session while it lists a dataset.
#pragma once

#include "runtime/base/result.hpp"

#include <cstddef>
#include <functional>

namespace penstock {

/// Enough concurrent requests to hide their latency.
inline constexpr unsigned requests_at_once = 64;

/// Calls work(i) for all i < count, on `threads` threads; on the calling thread if that is 1. After a refusal, no
/// further call starts. Returns the refusal with the lowest i.
result<void> in_parallel(std::size_t count, unsigned threads, const std::function<result<void>(std::size_t)>& work);

}  // namespace penstock
