#include "actors/gpu_owner/communicator_side.hpp"

#include "runtime/base/log.hpp"
#include "runtime/base/patient_wait.hpp"

#include <utility>

namespace penstock::gpu_owner {

bool communicator_side::open_library(bool on_host) {
  if (library()) return true;
  auto opened = device::nccl_library::open();
  if (!opened) {
    listener_->failed(opened.error());
    return false;
  }
  if (on_host && !(*opened)->works_on_host()) {
    listener_->failed(
        {errc::config,
         "[group] communicator = \"nccl\" needs a GPU for each rank, and this one uses the host device", 0});
    return false;
  }
  log::info("group", "NCCL {} ({})", (*opened)->version_text(), (*opened)->path());
  use(std::move(*opened));
  return true;
}

void communicator_side::draw_id(std::uint64_t number) {
  const auto id = library()->draw_id();
  if (!id) return listener_->failed(id.error());
  listener_->communicator_drawn(number, *id);
}

void communicator_side::follow(const communicate& order, bool on_host) {
  using act = communicate::act;
  if (order.what == act::agreed || order.what == act::free) return;
  if (order.what == act::end) return order_end();
  if (order.what == act::abort) return order_abort(order.number);
  if (!open_library(on_host)) return;
  if (order.what == act::draw_id) return draw_id(order.number);
  order_making(order.number, order.id);
}

bool communicator_side::wait_until_usable(nanoseconds at_most) {
  std::unique_lock hold(mutex_);
  return changed_.wait_for(hold, at_most, [&] { return book_.usable(); });
}

bool communicator_side::wait_until_gone(nanoseconds at_most) {
  std::unique_lock hold(mutex_);
  return is_done_within(changed_, hold, at_most, [&] { return !communicator_; });
}

}  // namespace penstock::gpu_owner
