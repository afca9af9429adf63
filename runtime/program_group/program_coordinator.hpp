// Rank 0's part of a group of programs: the coordinator_driver, the book of the collective operations, and
// the links of all ranks. Used by program_group, on its I/O thread.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/group/collective_book.hpp"
#include "runtime/group/communicator_keeper.hpp"
#include "runtime/group/coordinator_driver.hpp"
#include "runtime/net/links.hpp"

#include <boost/asio/io_context.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace penstock::group {

class program_coordinator {
 public:
  /// `communicator`: rank 0's, which creates ids; null if the group has none.
  program_coordinator(const group_settings& settings, std::string name, communicator_keeper* communicator);

  /// Calls `step` after every incoming message. Calls `cannot_listen` with the reason if it cannot listen,
  /// and with an empty text once it can.
  result<void> listen(boost::asio::io_context& io, const link_settings& links,
                      const std::function<void()>& step,
                      const std::function<void(const std::string&)>& cannot_listen,
                      const std::function<void(const std::string&)>& peer_refused);
  void step();
  /// The answer to communicator_keeper::draw().
  void drawn(std::uint64_t number, const std::string& id);

  /// Why the programs are permanently out of step; empty if they are not.
  [[nodiscard]] std::optional<std::string> wrong() const;
  void leave();
  [[nodiscard]] bool may_go() const noexcept { return driver_.may_go(); }

 private:
  struct peer {
    std::uint32_t rank = 0;
    bool leaves = false;
    std::optional<collective_report> said{};
    std::optional<send_over_link> told{};  // the last order sent
    shared_collective_result answered{};
  };

  void hear(link_id link, const member_report& report);
  void hear_collectives(link_id link, const std::string& bytes);
  void follow(send_over_link order);
  void send(peer& p);
  void draw_unless_one_leaves();
  void answer();

  const std::string name_;
  communicator_keeper* const communicator_;
  coordinator_driver driver_;
  collective_book collectives_;
  std::vector<std::uint64_t> processes_;  // by rank: the process that has the rank, according to the group's book
  std::map<std::uint64_t, peer> peers_;   // by process
  std::unique_ptr<coordinator_listener> listener_;
  std::optional<std::uint64_t> to_draw_;  // the number of the communicator whose id must be created
};

}  // namespace penstock::group
