// The event at the bottom of `penstock top`: the latest one, without those that follow from it. A worker that died is still shown when its
// replacement is ready and has loaded its batches. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <chrono>
#include <string>

namespace penstock::cli {

class latest_event {
 public:
  /// Call for each event, oldest first.
  void hear(const nlohmann::ordered_json& event);
  /// "event    12 s ago: worker 0 (pid 17) ended: SIGSEGV"; empty: there is none.
  [[nodiscard]] std::string in_words(std::chrono::system_clock::time_point now) const;

 private:
  std::string time_;
  std::string text_;
};

}  // namespace penstock::cli
