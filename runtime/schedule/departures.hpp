// Which of the workers that drain are to be told to stop, and when: once they hold no lease any more, or, if they
// hurry, after the batch at hand. Pure; used by the scheduler actor, which tells them.
#pragma once

#include "runtime/base/ids.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

namespace penstock::schedule {

class departures {
 public:
  /// Hurries: others load again what it holds beyond the batch at hand.
  void drains(worker_ref who, bool hurries);
  /// A batch of its was accepted.
  void finished_a_batch(worker_ref who);
  /// It is dead, or written off.
  void gone(worker_ref who);

  /// Who is to be told to stop now, each once. `leases_of` tells how many leases a worker holds.
  [[nodiscard]] std::vector<worker_ref> due(const std::function<std::size_t(std::uint32_t)>& leases_of);

 private:
  struct departure {
    worker_ref who;
    bool hurries = false;
    bool finished_one = false;  // since it hurries
    bool told = false;
  };

  std::map<std::uint32_t, departure> leaving_;  // by place
};

}  // namespace penstock::schedule
