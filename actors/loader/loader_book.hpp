// Decides what a loader worker does next, and with which exit code its process ends. Pure: messages from the session and the outcome
// of each step come in, the next step goes out. Driven by the loader actor.
//
//            open_dataset                           assign_slots
//   waiting -------------> opening --> described --------------> setting_up --> ready: runs leases, urgent ones first
//   any of them --> over: exit 82 or 78 if the session or the dataset fails, 75 if a sample loaded CUDA, 83 if the link closes,
//                   0 if told to stop
#pragma once

#include "actors/protocol/messages.hpp"
#include "runtime/base/layout.hpp"
#include "runtime/base/result.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace penstock::loader {

// ---- steps: carry one out, then tell the book its outcome ---------------------------------------------------

/// Make the dataset, describe it to the session. Then: described(), or a failure.
struct open_and_describe {
  protocol::open_dataset order;
};
/// Map the slots, set the dataset up. Then: set_up(), or a failure.
struct map_and_set_up {
  protocol::assign_slots order;
  batch_layout layout;
};
/// Tell the session that this worker is ready for leases. No outcome.
struct report_ready {};
/// Then: urgent().
struct look_for_urgent {};
/// Load the samples, report the batch. Then: ran(), stopped() or session_failed().
struct run_lease {
  protocol::load_batch lease;
};
/// Tell the session what the dataset calls these samples. No outcome.
struct tell_names {
  std::vector<std::uint64_t> samples;
};
/// Tell the session why, if there is a reason, and exit. No outcome: the book has no further steps.
struct end_process {
  int exit_code = 0;
  std::optional<failure> why{};
};

using loader_step = std::variant<open_and_describe, map_and_set_up, report_ready, look_for_urgent, run_lease, tell_names, end_process>;

class loader_book {
 public:
  /// The step to do next; empty: wait for the next message.
  using next_step = std::optional<loader_step>;

  // Messages.
  [[nodiscard]] next_step open(const protocol::open_dataset& order);
  [[nodiscard]] next_step assign(const protocol::assign_slots& order);
  [[nodiscard]] next_step lease(protocol::load_batch lease);
  [[nodiscard]] next_step name(const protocol::name_samples& order);
  /// `reason`: how the session violated the protocol; empty: it has closed the link.
  [[nodiscard]] next_step link_lost(const std::string& reason);
  /// Call when an urgent lease may have come, or the order to stop.
  [[nodiscard]] next_step woken(bool stopping);

  // Outcomes.
  [[nodiscard]] next_step described(std::vector<tensor_spec> tensors);
  /// `pid`: this process, for messages.
  [[nodiscard]] next_step set_up(bool cuda_loaded, std::int32_t pid);
  [[nodiscard]] next_step urgent(std::optional<protocol::load_batch> lease);
  [[nodiscard]] next_step ran(bool cuda_loaded);
  /// Call if the order to stop came before the batch was finished.
  [[nodiscard]] next_step stopped();
  /// Call if something that the session has sent or shares with this process cannot be used.
  [[nodiscard]] next_step session_failed(failure why);
  /// Call if user code has failed in a way that concerns the dataset as a whole.
  [[nodiscard]] next_step dataset_failed(failure why);

 private:
  enum class state : std::uint8_t { waiting, opening, described, setting_up, ready, over };

  [[nodiscard]] next_step out_of_turn(const char* what);
  [[nodiscard]] next_step end(int exit_code, std::optional<failure> why = std::nullopt);

  state at_ = state::waiting;
  std::uint32_t worker_ = 0;
  std::vector<tensor_spec> tensors_;           // as described
  std::optional<protocol::load_batch> usual_;  // runs after the urgent ones
};

}  // namespace penstock::loader
