#include "runtime/group/communicator_book.hpp"

#include "runtime/base/check.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/units.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace penstock::group {

using progress = communicator_state::how;

std::vector<communicator_command> communicator_book::advance(steady_time now) {
  const bool late = now >= due_;
  if (late && stage_ == stage::making) {
    failed(number_, fmt::format("it was not made within {}", duration_as_config(limits_.make_timeout)));
  } else if (late && stage_ == stage::draining) {
    give_up(fmt::format("the program has kept {} open for {}", counted(scopes_, "use"),
                        duration_as_config(limits_.abort_timeout)));
  } else if (late && stage_ == stage::aborting) {
    give_up(fmt::format("the abort has not returned for {}", duration_as_config(limits_.abort_timeout)));
  }
  if (stage_ == stage::draining && scopes_ == 0) {
    stage_ = stage::aborting;
    due_ = now + limits_.abort_timeout;
    outbox_.emplace_back(begin_abort{number_});
  }
  if (stage_ == stage::none && next_) begin(*std::exchange(next_, std::nullopt), now);
  return std::exchange(outbox_, {});
}

void communicator_book::make(std::uint64_t number, std::string id, steady_time now) {
  if (number <= ordered_ || number <= unwanted_ || stage_ == stage::over) return;
  ordered_ = number;
  if (stage_ == stage::none) return begin({number, std::move(id)}, now);
  next_ = order{number, std::move(id)};
  drain(now);
}

void communicator_book::abort(std::uint64_t number, steady_time now) {
  unwanted_ = std::max(unwanted_, number);
  if (next_ && next_->number <= unwanted_) next_.reset();
  if (stage_ == stage::none && number >= number_) {
    // This communicator is completely gone, or its order never
    // arrived. In either case the group waits for a report.
    number_ = number;
    tell(progress::aborted);
  }
  if (number_ <= unwanted_) drain(now);
}

void communicator_book::begin(order next, steady_time now) {
  stage_ = stage::making;
  number_ = next.number;
  used_ = false;
  due_ = now + limits_.make_timeout;
  tell(progress::making);
  outbox_.emplace_back(begin_making{number_, std::move(next.id)});
}

void communicator_book::drain(steady_time now) {
  if (stage_ != stage::making && stage_ != stage::made && stage_ != stage::broken) return;
  stage_ = stage::draining;
  due_ = now + limits_.abort_timeout;
  tell(progress::aborting);
}

void communicator_book::made(std::uint64_t number) {
  if (number != number_ || stage_ != stage::making) return;
  stage_ = stage::made;
  due_ = never;
  tell(progress::made);
}

void communicator_book::failed(std::uint64_t number, std::string why) {
  if (number != number_ || (stage_ != stage::making && stage_ != stage::made)) return;
  stage_ = stage::broken;
  due_ = never;
  tell(progress::broken, std::move(why));
}

void communicator_book::aborted(std::uint64_t number) {
  if (number != number_ || stage_ != stage::aborting) return;
  stage_ = stage::none;
  due_ = never;
  tell(progress::aborted);
}

bool communicator_book::open_scope() {
  if (stage_ != stage::made) return false;
  ++scopes_;
  used_ = true;
  return true;
}

void communicator_book::close_scope() {
  PENSTOCK_CHECK(scopes_ > 0, "a use of communicator {} ends twice", number_);
  --scopes_;
}

void communicator_book::tell(communicator_state::how at, std::string cause) {
  outbox_.emplace_back(tell_communicator{{number_, at, std::move(cause)}});
}

void communicator_book::give_up(std::string reason) {
  stage_ = stage::over;
  due_ = never;
  next_.reset();
  outbox_.emplace_back(replace_owner{fmt::format("communicator {} cannot be aborted: {}",
                                                 communicator_ordinal(number_), std::move(reason))});
}

}  // namespace penstock::group
