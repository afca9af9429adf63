// Shared by the tests of pools.
#pragma once

#include <penstock/pool.hpp>

#include <chrono>
#include <optional>
#include <stdexcept>
#include <thread>

namespace penstock::testing {

inline config odd_jobs(std::uint32_t workers) {
  config c;
  c.name = "jobs";
  c.loader.command = {PENSTOCK_ODD_JOBS};
  c.loader.workers = workers;
  c.loader.restart.intensity.max = 1000;
  c.log.level = log_level::off;
  return c;
}

inline pool_options quietly() {
  pool_options options;
  options.control_socket = false;
  return options;
}

template <class Call>
std::optional<errc> code_of(Call call) {
  try {
    call();
  } catch (const error& refused) {
    return refused.code();
  }
  return std::nullopt;
}

/// Rule J31.
inline bool adds_up(const pool_statistics& s) {
  return s.submitted == s.waiting + s.running + s.ok + s.failed + s.cancelled;
}

/// The status of an ended job.
inline job_status status_of(Job job) {
  try {
    job.get();
  } catch (const job_error& failed) {
    return failed.status();
  }
  return job_status::ok;
}

/// Polls until the condition holds; only for conditions without a notification.
template <class Condition>
void await(Condition holds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("not met within 20 s");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace penstock::testing
