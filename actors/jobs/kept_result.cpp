#include "actors/jobs/kept_result.hpp"

namespace penstock::jobs {

kept_result::kept_result(std::uint64_t job, std::vector<std::byte> copy, std::shared_ptr<admission> meter)
    : where_(std::move(copy)), meter_(std::move(meter)), job_(job) {
  if (const std::uint64_t bytes = std::get<0>(where_).size(); bytes > 0) this->meter(bytes);
}

kept_result::kept_result(std::uint64_t job, mapping parcel, std::uint64_t bytes,
                         std::shared_ptr<admission> meter)
    : where_(std::move(parcel)), meter_(std::move(meter)), job_(job), parcel_bytes_(bytes) {
  this->meter(bytes);
}

kept_result::kept_result(std::uint64_t job, in_slot where, std::shared_ptr<admission> meter)
    : where_(std::move(where)), meter_(std::move(meter)), job_(job) {}

kept_result::kept_result(std::unique_ptr<device_result> there) : where_(std::move(there)) {}

kept_result::~kept_result() {
  if (meter_ && meter_->home().left()) return;
  if (metered_) meter_->let_go(*metered_);
  if (const auto* const slot = std::get_if<in_slot>(&where_)) give_slot_back(*slot);
}

void kept_result::give_slot_back(const in_slot& slot) noexcept {
  if (std::exchange(lent_, false)) slot.place->lent.fetch_sub(1, std::memory_order_relaxed);
  (*slot.left)(slot.lease);
}

void kept_result::require_home() const {
  if (meter_) meter_->home().require("Result");  // on the device, batch_home checks this
}

std::span<const std::byte> kept_result::bytes() {
  const std::lock_guard hold(mutex_);
  if (auto* const slot = std::get_if<in_slot>(&where_)) {
    if (lent_) return slot->bytes;
    if (slot->place->lent.fetch_add(1, std::memory_order_relaxed) + 1 < slot->place->slots) {
      lent_ = true;
      return slot->bytes;
    }
    slot->place->lent.fetch_sub(1, std::memory_order_relaxed);
    const in_slot was = *slot;
    copy_out();
    (*was.left)(was.lease);
  }
  if (std::holds_alternative<std::unique_ptr<device_result>>(where_)) return there().bytes();
  if (const auto* const parcel = std::get_if<mapping>(&where_)) return parcel->bytes().first(parcel_bytes_);
  return std::get<std::vector<std::byte>>(where_);
}

bool kept_result::leave_slot() {
  const std::lock_guard hold(mutex_);
  if (lent_ || !std::holds_alternative<in_slot>(where_)) return false;
  copy_out();
  return true;
}

void kept_result::count_as(std::uint64_t bytes) {
  const std::lock_guard hold(mutex_);
  if (std::holds_alternative<std::unique_ptr<device_result>>(where_))
    throw error({errc::usage, "this Result is on the device, so it takes no host memory that could be counted", 0});
  if (const auto* const slot = std::get_if<in_slot>(&where_)) give_slot_back(*slot);
  where_ = std::vector<std::byte>();
  if (metered_) meter_->let_go(*std::exchange(metered_, std::nullopt));
  if (bytes > 0) meter(bytes);
}

void kept_result::stay_in_slot() {
  const std::lock_guard hold(mutex_);
  const auto* const slot = std::get_if<in_slot>(&where_);
  if (slot == nullptr || lent_) return;
  slot->place->lent.fetch_add(1, std::memory_order_relaxed);
  lent_ = true;
}

const device_result& kept_result::there() const {
  const auto* const found = std::get_if<std::unique_ptr<device_result>>(&where_);
  if (found == nullptr)
    throw error(
        {errc::usage, "this Result is not on the device: request that with job_options::on_device", 0});
  if (!*found) throw error({errc::usage, "this Result was released", 0});
  return **found;
}

bool kept_result::on_device() const {
  const std::lock_guard hold(mutex_);
  return std::holds_alternative<std::unique_ptr<device_result>>(where_);
}

tensor_view kept_result::tensor() const {
  const std::lock_guard hold(mutex_);
  return there().tensor();
}

std::vector<std::byte> kept_result::read_back() {
  {
    const std::lock_guard hold(mutex_);
    if (std::holds_alternative<std::unique_ptr<device_result>>(where_)) return there().read_back();
  }
  const auto all = bytes();
  return {all.begin(), all.end()};
}

void kept_result::release(stream_handle stream) {
  const std::lock_guard hold(mutex_);
  static_cast<void>(there());
  auto& held = std::get<std::unique_ptr<device_result>>(where_);
  held->release(stream);  // if this throws, the buffer is still held
  held.reset();
}

void kept_result::copy_out() {
  const std::span<const std::byte> bytes = std::get<in_slot>(where_).bytes;
  where_ = std::vector<std::byte>(bytes.begin(), bytes.end());
  meter(bytes.size());
}

void kept_result::meter(std::uint64_t bytes) {
  metered_ = meter_->kept(job_, bytes);
  (*metered_)->owner.store(owner_, std::memory_order_relaxed);
}

void kept_result::belongs_to(schedule::job_bounds::thread_number thread) noexcept {
  const std::lock_guard hold(mutex_);
  owner_ = thread;
  if (metered_) (*metered_)->owner.store(thread, std::memory_order_relaxed);
}

}  // namespace penstock::jobs
