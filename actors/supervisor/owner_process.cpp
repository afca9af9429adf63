#include "actors/supervisor/owner_process.hpp"

#include "actors/caf/caf.hpp"
#include "runtime/process/crash_notes.hpp"
#include "runtime/process/inherited_environment.hpp"

namespace penstock::supervisor {

linked_child_request owner_process::request_for(std::uint32_t /*incarnation*/) {
  return {.who = "the GPU owner",
          .program = "penstock-gpu",
          .arguments = {},
          .environment = process::inherited_environment(),
          .lifeline = fds_.lifeline,
          .arena = fds_.arena,
          .flight = fds_.flight,
          .cores = fds_.cores};
}

void owner_process::tell_started(std::uint32_t incarnation, linked_child& made, const std::shared_ptr<child_link>& link) {
  actors::tell(listeners_.keeper, owner_started{incarnation, made.pid, link});
}

void owner_process::tell_refused(std::uint32_t incarnation, failure why) {
  actors::tell(listeners_.keeper, owner_refused{incarnation, std::move(why)});
}

void owner_process::tell_message(std::uint32_t incarnation, protocol::from_owner&& message) {
  actors::tell(listeners_.keeper, owner_spoke{incarnation, std::move(message)});
}

void owner_process::tell_closed(std::uint32_t incarnation, const std::string& reason) {
  actors::tell(listeners_.keeper, owner_lost_link{incarnation, reason});
}

void owner_process::tell_ended(std::uint32_t incarnation, const process::exit_report& report,
                               const process::output_tail& tail) {
  actors::tell(listeners_.keeper, owner_exited{incarnation, report,
                                               process::last_lines_without_stack(
                                                   tail.text(), process::output_tail::lines_shown)});
}

}  // namespace penstock::supervisor
