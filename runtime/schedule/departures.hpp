// When to tell draining workers to stop: once they hold no leases, or, if they hurry, after their current batch. Pure;
// used by the scheduler actor, which tells them.
#pragma once

#include "runtime/base/ids.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

namespace penstock::schedule {

class departures {
 public:
  /// Hurries: others load again what it holds beyond its current batch.
  void drains(worker_ref who, bool hurries);
  /// One of its batches was accepted.
  void finished_a_batch(worker_ref who);
  /// It is dead or written off.
  void gone(worker_ref who);

  /// The workers to tell to stop now, each only once. `leases_of`: how many leases a worker holds.
  [[nodiscard]] std::vector<worker_ref> due(const std::function<std::size_t(std::uint32_t)>& leases_of);

 private:
  struct departure {
    worker_ref who;
    bool hurries = false;
    bool finished_one = false;  // since it began to hurry
    bool told = false;
  };

  std::map<std::uint32_t, departure> leaving_;  // by place
};

}  // namespace penstock::schedule
