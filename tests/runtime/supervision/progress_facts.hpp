// Made-up sessions for the tests of awaited and progress_watch.
#pragma once

#include "runtime/supervision/awaited.hpp"

#include <string>

namespace penstock::testing {

inline constexpr std::uint32_t sacrificial = 64;

inline batch_passage batch_at(stream_position position, batch_stage stage, std::uint32_t worker = 0) {
  batch_passage b;
  b.position = b.sequence = position;
  b.worker = worker;
  b.incarnation = 1;
  for (std::size_t i = 0; i <= static_cast<std::size_t>(stage); ++i)
    b.at[i] = 1 + static_cast<std::int64_t>(i);
  return b;
}

inline worker_status worker_in(std::uint32_t id, child_state state) {
  worker_status w;
  w.id = id;
  w.state = state;
  w.incarnation = 1;
  if (state != child_state::stopped && state != child_state::backoff && state != child_state::failed) w.pid = 100 + static_cast<int>(id);
  return w;
}

/// A session with one idle worker, whose consumer asks for a batch.
inline supervision::progress_facts asking() {
  supervision::progress_facts f;
  f.status.state = session_state::ok;
  f.status.gpu_state = child_state::ready;
  f.status.workers = {worker_in(0, child_state::ready)};
  f.buffers = 4;
  f.sacrificial_place = sacrificial;
  f.consumer_waits = true;
  return f;
}

}  // namespace penstock::testing
