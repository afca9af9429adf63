#include "runtime/schedule/epoch_book.hpp"

#include <algorithm>

namespace penstock::schedule {

epoch_book::epoch_book(stream_identity identity, const stream_shape& shape, steady_time demanded)
    : identity_(std::move(identity)), shape_(shape), last_taken_(demanded) {}

void epoch_book::resume(const stream_state& state) {
  const std::uint64_t batch = shape_.of(state.epoch).first_batch + state.next_batch;
  front_ = delivery_front(state.epoch * shape_.batches_per_epoch + batch, state.early);
  accounts_.clear();
  open_ = false;
  if (state.next_batch == 0 && state.early == 0) return;
  open_account(state.epoch, batch);
  epoch_account& open = accounts_.back();
  open.delivered = state.delivered;
  open.failed = state.failed;
  open.quarantined = state.quarantined;
  open.batches = state.next_batch + front_.count_early();
  digests_ = state.digests;
  auto digest = state.early_digests.begin();
  for (stream_position p = front_.head() + 1; digest != state.early_digests.end(); ++p) {
    if (front_.has(p)) early_digests_[p] = *digest++;
  }
}

void epoch_book::begin_at(stream_position position) {
  leave_account();
  front_ = delivery_front(position);
  early_digests_.clear();
}

void epoch_book::reshape(const stream_shape& shape) {
  leave_account();
  shape_ = shape;
}

void epoch_book::open_account(std::uint64_t epoch, std::uint64_t from_batch) {
  leave_account();
  accounts_.push_back({});
  accounts_.back().epoch = epoch;
  accounts_.back().from_batch = from_batch;
  const epoch_share& share = shape_.of(epoch);
  accounts_.back().from_position = share.start;
  accounts_.back().expected = share.expected;
  accounts_.back().padded = share.padded;
  open_ = true;
  digests_ = {};
  early_digests_.clear();
  begun_.reset();
}

void epoch_book::leave_account() {
  if (!std::exchange(open_, false)) return;
  accounts_.back().digest = digest_of_open();
}

std::optional<std::string> epoch_book::digest_of_open() const {
  const epoch_account& open = accounts_.back();
  if (open.batches == 0 || digests_.count() != open.batches) return std::nullopt;
  return digests_.hex();
}

const epoch_account& epoch_book::delivered(const delivered_batch& batch) {
  const std::uint64_t lead = batch.position - front_.head();
  front_.add(batch.position);
  const std::uint64_t epoch = batch.position / shape_.batches_per_epoch;
  if (!open_) open_account(epoch, batch.position % shape_.batches_per_epoch);
  epoch_account& open = accounts_.back();
  open.delivered += batch.rows;
  open.failed += batch.failed;
  open.quarantined += batch.quarantined;
  open.replaced += batch.replaced;
  ++open.batches;
  open.early_batches += lead > 0 ? 1 : 0;
  open.most_early = std::max(open.most_early, lead);
  // A digest covers a whole epoch, so an epoch that was entered in the middle has none.
  if (batch.digest && open.from_position == 0) add_digest(batch.position, *batch.digest);
  if (!begun_) begun_ = batch.demanded.value_or(last_taken_);
  last_taken_ = batch.taken;
  open.took = std::max(batch.taken - *begun_, nanoseconds(0));
  // This never becomes true for an epoch that was entered in the middle without a state.
  open.complete = open.batches == shape_.batches_of(epoch);
  if (front_.head() / shape_.batches_per_epoch > epoch) leave_account();
  return open;
}

void epoch_book::add_digest(stream_position position, std::uint64_t digest) {
  early_digests_[position] = digest;
  while (!early_digests_.empty() && early_digests_.begin()->first < front_.head()) {
    digests_.add(early_digests_.begin()->second);
    early_digests_.erase(early_digests_.begin());
  }
}

std::vector<epoch_account> epoch_book::epochs() const {
  std::vector<epoch_account> all = accounts_;
  if (open_) all.back().digest = digest_of_open();
  return all;
}

stream_state epoch_book::state() const {
  stream_state s;
  s.identity = identity_;
  if (shape_.batches_per_epoch == 0) return s;
  s.epoch = front_.head() / shape_.batches_per_epoch;
  const epoch_share& share = shape_.of(s.epoch);
  s.start = share.start;
  s.next_batch = front_.head() % shape_.batches_per_epoch - share.first_batch;
  if (!open_) return s;
  const epoch_account& open = accounts_.back();
  s.delivered = open.delivered;
  s.failed = open.failed;
  s.quarantined = open.quarantined;
  s.digests = digests_;
  s.early = front_.early();
  if (early_digests_.size() == front_.count_early())
    for (const auto& [position, digest] : early_digests_) s.early_digests.push_back(digest);
  return s;
}

}  // namespace penstock::schedule
