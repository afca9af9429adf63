// Shared by tests of sessions: a small synthetic stream on the host device, and waiting for other threads.
#pragma once

#include <penstock/session.hpp>

#include <poll.h>

#include <chrono>

namespace penstock::testing {

inline config small(std::uint32_t workers = 2) {
  config c;
  c.name = "session-test";
  c.dataset.type = dataset_type::synthetic;
  c.dataset.samples = 100;
  c.dataset.bytes_per_sample = byte_size{4096};
  c.dataset.fill = fill_kind::random;
  c.sampler.batch_size = 8;
  c.sampler.epochs = 2;
  c.loader.workers = workers;
  c.gpu.device = "host";
  c.log.level = log_level::off;
  return c;
}

inline session_options quietly() {
  session_options o;
  o.control_socket = false;
  return o;
}

/// Waits for something that happens on other threads; false after ten seconds.
template <class Condition>
bool eventually(Condition condition) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    ::poll(nullptr, 0, 2);
  }
  return true;
}

}  // namespace penstock::testing
