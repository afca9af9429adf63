#include "actors/supervisor/owner_communicator.hpp"

#include "actors/supervisor/owner_rules.hpp"

#include <algorithm>
#include <utility>

namespace penstock::supervisor {
namespace {

using gpu_owner::communicate;
using progress = group::communicator_state::how;

protocol::wire_communicate as_wire(const communicate& order) {
  return {static_cast<std::uint32_t>(order.what), order.number, order.id, order.agreed};
}

}  // namespace

owner_communicator::owner_communicator(nanoseconds abort_timeout)
    : abort_(keeper_waits_of_an_abort * abort_timeout, look_every) {}

owner_communicator::orders owner_communicator::ordered(const communicate& order, steady_time now) {
  orders to;
  switch (order.what) {
    case communicate::act::draw_id:
      to_draw_ = order.number;
      // If the current process will be replaced before it can use the id, the next process creates one.
      to.replace = must_go();
      if (hears() && !to.replace) to.send.push_back(as_wire(order));
      break;
    case communicate::act::make: make(order, to); break;
    case communicate::act::abort: abort(order.number, now, to); break;
    case communicate::act::agreed:
      agree(order.agreed, to);
      if (hears()) to.send.push_back(as_wire(order));
      break;
    case communicate::act::free:
      free_ = true;
      if (!held_.empty()) agree(held_.back().step, to);
      if (hears()) to.send.push_back(as_wire(order));
      break;
    case communicate::act::end: break;  // not an order of the group
  }
  return to;
}

void owner_communicator::agree(std::uint64_t step, orders& to) {
  agreed_ = std::max(agreed_, step);
  if (held_.empty() || held_.front().step > agreed_) return;
  while (!held_.empty() && held_.front().step <= agreed_) {
    held& first = held_.front();
    if (first.news.snapshots) {
      kept_ = first.step;
      to.snapshot = std::move(first.news.snapshot);
    }
    first.news.snapshots = false;
    first.news.snapshot.clear();
    if (first.counts) to.agreed.push_back(std::move(first.news));
    held_.pop_front();
  }
  to.held = steps();
}

void owner_communicator::make(const communicate& order, orders& to) {
  agree(order.agreed, to);
  held_.clear();
  to.held = std::vector<std::uint64_t>();
  to_make_ = order;
  to.replace = hears() && (must_go() || given_ != kept_);
  if (to.replace && drawn_ == order.number) lost_id_ = drawn_;
  if (refuse_lost_id(to) || !hears() || to.replace) return;
  send_make(to);
}

void owner_communicator::send_make(orders& to) {
  at_ = process::making;
  number_ = to_make_->number;
  to.send.push_back(as_wire(*std::exchange(to_make_, std::nullopt)));
}

/// All ranks meet at the process that created the id. Without that process they would wait for each other until
/// make_timeout, so report the failure: the group then has another id created.
bool owner_communicator::refuse_lost_id(orders& to) {
  if (!to_make_ || to_make_->number > lost_id_) return false;
  to.told.push_back({to_make_->number, progress::broken, "the process that created its id has ended"});
  to.told.push_back({to_make_->number, progress::aborted, {}});
  to_make_.reset();
  return true;
}

void owner_communicator::abort(std::uint64_t number, steady_time now, orders& to) {
  if (to_make_ && to_make_->number <= number) to_make_.reset();
  if (number_ == 0) {
    to.told.push_back({number, progress::aborted, {}});
    return;
  }
  abort_.restart(now);
  aborting_ = true;
  to.send.push_back(as_wire({communicate::act::abort, number, {}, 0}));
}

std::uint64_t owner_communicator::introduced() {
  given_ = kept_;
  return given_;
}

owner_communicator::orders owner_communicator::ready() {
  orders to;
  at_ = process::unused;
  number_ = 0;
  if (agreed_ > 0) to.send.push_back(as_wire({communicate::act::agreed, 0, {}, agreed_}));
  if (free_) to.send.push_back(as_wire({communicate::act::free, 0, {}, 0}));
  if (to_draw_ != 0) to.send.push_back(as_wire({communicate::act::draw_id, to_draw_, {}, 0}));
  if (refuse_lost_id(to) || !to_make_) return to;
  to.replace = given_ != kept_;
  if (!to.replace) send_make(to);
  return to;
}

owner_communicator::orders owner_communicator::delivered(std::uint64_t step,
                                                         protocol::batches_delivered news) {
  orders to;
  if (free_ || step <= agreed_) {
    if (news.snapshots && step >= kept_) {
      kept_ = step;
      to.snapshot = std::move(news.snapshot);
    }
    news.snapshots = false;
    to.agreed.push_back(std::move(news));
    return to;
  }
  held_.push_back({step, std::move(news), true});
  if (held_.size() > group::held_max) {
    // Merge the two newest reports: the later one's snapshot covers both.
    held last = std::move(held_.back());
    held_.pop_back();
    held& before = held_.back();
    if (before.counts) {
      auto& all = before.news.deliveries;
      all.insert(all.end(), last.news.deliveries.begin(), last.news.deliveries.end());
      last.news.deliveries = std::move(all);
      last.news.uploads += before.news.uploads;
      last.news.bytes += before.news.bytes;
    }
    before = std::move(last);
  }
  to.held = steps();
  return to;
}

owner_communicator::orders owner_communicator::told(const group::communicator_state& state) {
  orders to;
  to.told.push_back(state);
  if (number_ == 0 || state.number != number_) return to;
  if (state.at == progress::made) at_ = process::member;
  if (state.at != progress::aborted) return to;
  at_ = at_ == process::member ? process::spent : process::unused;
  number_ = 0;
  aborting_ = false;
  return to;
}

void owner_communicator::drawn(std::uint64_t number) {
  if (to_draw_ == number) to_draw_ = 0;
  drawn_ = number;
}

owner_communicator::orders owner_communicator::ended(bool finished) {
  orders to;
  at_ = process::gone;
  aborting_ = false;
  lost_id_ = std::max(lost_id_, std::exchange(drawn_, 0));
  for (held& one : held_) {
    one.counts = false;
    one.news.deliveries.clear();
  }
  if (number_ != 0 && !finished) {
    to.told.push_back({number_, progress::broken, "the GPU owner has ended"});
    to.told.push_back({number_, progress::aborted, {}});
  }
  number_ = 0;
  return to;
}

owner_communicator::orders owner_communicator::look(steady_time now) {
  orders to;
  if (!aborting_ || !abort_.is_over(now)) return to;
  aborting_ = false;
  to.replace = true;
  return to;
}

std::vector<std::uint64_t> owner_communicator::steps() const {
  std::vector<std::uint64_t> all;
  for (const held& one : held_) all.push_back(one.step);
  return all;
}

}  // namespace penstock::supervisor
