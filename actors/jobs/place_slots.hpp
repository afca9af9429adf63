// The session's side of one place's slots: writes jobs into them and reads the outcomes. Trusts nothing that
// a worker wrote (job_slot.hpp). Used only by the job scheduler.
#pragma once

#include "actors/jobs/job_record.hpp"
#include "actors/jobs/kept_result.hpp"
#include "actors/protocol/parcels.hpp"
#include "runtime/arena/geometry.hpp"
#include "runtime/arena/job_slot.hpp"
#include "runtime/schedule/job_book.hpp"

#include <memory>
#include <vector>

namespace penstock::jobs {

/// Results up to this size are copied out of the slot as soon as they are reported, which is cheaper than
/// tracking when the caller frees them.
inline constexpr std::uint64_t copied_at_once = 16U << 10U;

/// The job scheduler itself writes a lease whose arguments have at most this total size: waking another
/// thread would take longer.
inline constexpr std::uint64_t written_at_once_max = 64U << 10U;

/// A job to be written into a slot.
struct slot_job {
  job_record* job = nullptr;
  std::uint32_t function = 0;
  std::uint32_t attempt = 1;
};

/// A lease whose table is written and whose arguments must still be copied, on any thread. The slot gets no
/// other lease before this object is destroyed.
class argument_delivery {
 public:
  argument_delivery(argument_delivery&&) noexcept = default;
  argument_delivery& operator=(argument_delivery&&) = delete;
  ~argument_delivery();

  /// Copies the arguments, or sends them through `parcels`, and releases them. The worker may then be
  /// notified. Fails with the system's error.
  result<void> copy(int parcels);

 private:
  friend class place_slots;
  struct row {
    Argument argument;
    std::uint64_t offset = 0;
    bool alone = false;
  };
  argument_delivery(std::shared_ptr<lent_place> place, arena::job_slot slot, const lease_ref& lease)
      : place_(std::move(place)), slot_(slot), lease_(lease) {}

  std::shared_ptr<lent_place> place_;  // null: moved from
  arena::job_slot slot_;
  lease_ref lease_;
  std::vector<row> rows_;
};

class place_slots {
 public:
  place_slots(std::shared_ptr<mapping> memory, const arena::geometry& shape)
      : shape_(shape), place_(std::make_shared<lent_place>()) {
    place_->memory = std::move(memory);
    place_->slots = shape.slots;
    place_->deliveries = std::vector<std::atomic<std::uint32_t>>(shape.slots);
  }

  /// Whether an argument is sent in its own memfd, because in the slot it would leave less than a quarter of
  /// the space.
  [[nodiscard]] static bool travels_alone(std::uint64_t argument_bytes, std::uint64_t slot_bytes);

  /// Whether the scheduler writes this lease itself. Never while other leases of this place are being
  /// delivered: a worker gets its leases in order.
  [[nodiscard]] bool written_at_once(std::span<const slot_job> jobs) const;
  /// Writes the table and the arguments, which fit the slot.
  void write_jobs(const lease_ref& lease, std::span<const slot_job> jobs);
  /// Writes the table. Before that, waits for an earlier delivery into this slot: there is one only if the
  /// worker died during it.
  [[nodiscard]] argument_delivery deliver(const lease_ref& lease, std::span<const slot_job> jobs);

  /// Rows first .. end - 1 of a lease.
  [[nodiscard]] schedule::lease_reading read(const lease_ref& lease, std::uint32_t first,
                                             std::uint32_t end) const;
  [[nodiscard]] bool revoke(const lease_ref& lease, std::uint32_t row) const;

  /// The result of a finished row. `parcel`: what the worker sent for the row, if anything.
  result<std::shared_ptr<kept_result>> result_of(std::uint64_t job, const lease_ref& lease, std::uint32_t row,
                                                 std::optional<protocol::parcel> parcel,
                                                 const std::shared_ptr<const slot_left>& left,
                                                 const std::shared_ptr<admission>& meter) const;
  /// The result of a finished row for the device: of any size, and not copied. Fails (errc::out_of_memory) if
  /// the result did not fit the slot.
  result<slot_result> result_in_slot(std::uint64_t job, const lease_ref& lease, std::uint32_t row,
                                     const std::shared_ptr<const slot_left>& left,
                                     const std::shared_ptr<admission>& meter) const;
  /// The error of a failed or too large row. `parcel`: see result_of().
  [[nodiscard]] job_failure failure_of(const lease_ref& lease, std::uint32_t row,
                                       std::optional<protocol::parcel> parcel) const;
  [[nodiscard]] bool result_elsewhere(const lease_ref& lease, std::uint32_t row) const;

 private:
  [[nodiscard]] std::span<std::byte> memory_of(std::uint32_t slot) const;
  [[nodiscard]] arena::job_slot slot(std::uint32_t index) const;
  [[nodiscard]] std::vector<arena::job_order> orders_of(const lease_ref& lease,
                                                        std::span<const slot_job> jobs) const;
  void wait_for_delivery(std::uint32_t index) const;

  arena::geometry shape_;
  std::shared_ptr<lent_place> place_;
};

}  // namespace penstock::jobs
