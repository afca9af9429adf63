// Decides when a draining worker may be stopped: once it holds no leases or, with `after_current_batch`,
// after its current batch. Pure; used by the scheduler actor, which sends the messages.
#pragma once

#include "runtime/base/ids.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

namespace penstock::schedule {

class departures {
 public:
  /// The worker is to stop. `after_current_batch`: other workers load the batches that it has not begun.
  void drains(worker_ref who, bool after_current_batch);
  /// The worker has loaded one of its batches.
  void finished_a_batch(worker_ref who);
  /// The worker is dead or will not be used again.
  void gone(worker_ref who);

  /// The workers to stop now; each is returned once. `leases_of`: the number of leases that a worker holds.
  [[nodiscard]] std::vector<worker_ref> due(const std::function<std::size_t(std::uint32_t)>& leases_of);

 private:
  struct departure {
    worker_ref who;
    bool after_current_batch = false;
    bool finished_one = false;  // with after_current_batch: whether it has finished a batch since drains()
    bool told = false;
  };

  std::map<std::uint32_t, departure> leaving_;  // by place
};

}  // namespace penstock::schedule
