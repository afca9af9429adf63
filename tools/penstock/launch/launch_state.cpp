// The common state of a launch's ranks, and the file that keeps it.
#include "runtime/schedule/group_state.hpp"
#include "tools/penstock/launch/launch_run.hpp"

#include <boost/asio/post.hpp>

namespace penstock::cli {

result<std::vector<std::byte>> launch_run::group_state_now() const {
  std::vector<schedule::stream_state> states;
  for (const rank_history& history : histories_) {
    if (history.state().empty()) return std::vector<std::byte>();
    auto state = schedule::parse_state(history.state());
    if (!state) return tl::unexpected(std::move(state.error()));
    states.push_back(std::move(*state));
  }
  const auto common = schedule::group_state_of_slowest(std::move(states));
  if (!common) return tl::unexpected(common.error());
  return schedule::serialise(*common);
}

/// Runs on the thread in run(), because writing waits for the disk.
void launch_run::save_state() {
  std::promise<result<std::vector<std::byte>>> taken;
  boost::asio::post(io_.context(), [&] { taken.set_value(group_state_now()); });
  auto state = taken.get_future().get();
  if (state && state->empty()) return;
  state_trouble_.reset();
  auto saved = state ? work_.state_file->write(std::move(*state)) : tl::unexpected(std::move(state.error()));
  if (!saved) state_trouble_ = std::move(saved.error());
}

}  // namespace penstock::cli
