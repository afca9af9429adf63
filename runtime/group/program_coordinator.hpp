// Rank 0's part of a group of programs: the book of the group, that of the collective operations, and the links of all
// ranks. Used by program_group, on its I/O thread.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/group/collective_book.hpp"
#include "runtime/group/communicator_keeper.hpp"
#include "runtime/group/group_book.hpp"
#include "runtime/group/group_link.hpp"

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
  /// `communicator`: that of rank 0, which draws ids; null if the group has none.
  program_coordinator(const group_settings& settings, std::string name, communicator_keeper* communicator);

  /// `step` is called after every word that comes in.
  result<void> listen(boost::asio::io_context& io, const link_settings& links,
                      const std::function<void()>& step);
  void step();
  /// The answer to communicator_keeper::draw().
  void drawn(std::uint64_t number, const std::string& id);

  /// The programs are out of step for ever.
  [[nodiscard]] std::optional<std::string> wrong() const;
  /// Without a single report there is no group.
  [[nodiscard]] bool may_leave() const { return book_.may_leave() || peers_.empty(); }

 private:
  struct peer {
    std::uint32_t rank = 0;
    link_id link = 0;
    bool leaves = false;
    std::optional<collective_report> said{};
    std::optional<group_order> told{};  // last
    shared_collective_result answered{};
  };

  void tell(const group_event& event) const;
  void hear(link_id link, const member_report& report);
  void hear_collectives(link_id link, const std::string& bytes);
  void follow(send_order order);
  void send(std::uint64_t process, peer& p);
  void draw_unless_one_leaves();
  void answer();
  void forget_unless_last(link_id link);
  void lose_process(link_id link);

  const std::string name_;
  communicator_keeper* const communicator_;
  group_book book_;
  collective_book collectives_;
  std::vector<std::uint64_t> seats_;            // by rank: the process that has it, by the book's word
  std::map<std::uint64_t, peer> peers_;         // by process
  std::map<link_id, std::uint64_t> processes_;  // of links that are open
  std::unique_ptr<coordinator_listener> listener_;
  std::optional<std::uint64_t> to_draw_;  // the id of a communicator
};

}  // namespace penstock::group
