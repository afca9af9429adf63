// Starts, messages and signals the GPU owner's process for its keeper.
#pragma once

#include "actors/protocol/local/actors.hpp"
#include "actors/supervisor/child_processes.hpp"

namespace penstock::supervisor {

/// How many messages an owner may send unasked: 3 for hello, owner_opened and worker_gives_up, and 13 to
/// spare for gpu_processes_seen, for which each poll of the keeper allows one more.
inline constexpr std::uint64_t owner_messages_unasked = 16;

/// Descriptors to pass on.
struct owner_descriptors {
  int lifeline = -1;
  int arena = -1;
  int flight = -1;
  std::vector<int> cores{};  ///< cores that the owner may run on; empty: those of this process
};

struct owner_listeners {
  owner_keeper_actor keeper;
  output_listener* output = nullptr;
};

class owner_process final
    : public child_processes<std::uint32_t, protocol::from_owner, protocol::to_owner, owner_listeners> {
 public:
  owner_process(process::io_thread& io, owner_descriptors fds)
      : child_processes(io, owner_messages_unasked), fds_(std::move(fds)) {}

 private:
  linked_child_request request_for(std::uint32_t incarnation) override;
  void tell_started(std::uint32_t incarnation, linked_child& made, const std::shared_ptr<child_link>& link) override;
  void tell_refused(std::uint32_t incarnation, failure why) override;
  void tell_message(std::uint32_t incarnation, protocol::from_owner&& message) override;
  void tell_closed(std::uint32_t incarnation, const std::string& reason) override;
  void tell_ended(std::uint32_t incarnation, const process::exit_report& report,
                  const process::output_tail& tail) override;

  owner_descriptors fds_;
};

}  // namespace penstock::supervisor
