// A result in the caller's hands: it lies in the slot where its worker wrote it, in a memfd of its own, or in a copy.
// A result that nobody has looked at can leave its slot at any time; one whose bytes were handed out stays where it is.
// So that callers who keep results stop nobody, a place lends at most all of its slots but one; a result beyond that is
// copied when it is looked at (rule J11). Or it lies on the device, in a buffer of the ring.
#pragma once

#include "actors/jobs/admission.hpp"
#include "actors/jobs/device_result.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/base/mapping.hpp"

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <variant>
#include <vector>

namespace penstock::jobs {

/// One place's slots as mapped by the session. Lives as long as any result in them.
struct lent_place {
  std::shared_ptr<mapping> memory;
  std::uint32_t slots = 0;
  std::atomic<std::uint32_t> lent{0};  // results whose address is fixed
  // Of each slot: whether arguments are being copied into it. Of the place: how many slots that are.
  std::vector<std::atomic<std::uint32_t>> deliveries;
  std::atomic<std::uint32_t> delivering{0};
};

/// Tells the job scheduler that a result has left its slot; does nothing after the pool has ended.
using slot_left = std::function<void(const lease_ref&)>;

/// Thread-safe.
class kept_result {
 public:
  struct in_slot {
    std::shared_ptr<lent_place> place;
    lease_ref lease;
    std::span<const std::byte> bytes;
    std::shared_ptr<const slot_left> left;
  };

  kept_result(std::uint64_t job, std::vector<std::byte> copy, std::shared_ptr<admission> meter);
  kept_result(std::uint64_t job, mapping parcel, std::uint64_t bytes, std::shared_ptr<admission> meter);
  kept_result(std::uint64_t job, in_slot where, std::shared_ptr<admission> meter);
  explicit kept_result(std::unique_ptr<device_result> there);
  ~kept_result();
  kept_result(const kept_result&) = delete;
  kept_result& operator=(const kept_result&) = delete;

  /// Valid as long as this object.
  [[nodiscard]] std::span<const std::byte> bytes();
  /// Copies the result out of its slot, unless bytes() was called or it is in no slot. True: it was moved,
  /// and `slot_left` will not be called for it.
  bool leave_slot();
  /// Frees its bytes; as long as it lives it counts as so many.
  void count_as(std::uint64_t bytes);
  /// The device reads it where it lies, as long as this object lives.
  void stay_in_slot();
  /// The thread that has it, or will get it; it frees it.
  void belongs_to(schedule::job_bounds::thread_number thread) noexcept;

  // On the device. Throw error (errc::usage) if it is not there, or not any more.
  [[nodiscard]] bool on_device() const;
  [[nodiscard]] tensor_view tensor() const;
  [[nodiscard]] std::vector<std::byte> read_back();
  void release(stream_handle stream);

 private:
  [[nodiscard]] const device_result& there() const;

  void copy_out();
  void give_slot_back(const in_slot& slot) noexcept;
  void meter(std::uint64_t bytes);

  mutable std::mutex mutex_;
  std::variant<std::vector<std::byte>, mapping, in_slot, std::unique_ptr<device_result>> where_;
  std::shared_ptr<admission> meter_;
  std::uint64_t job_ = 0;
  std::optional<admission::holding> metered_;
  schedule::job_bounds::thread_number owner_ = 0;
  std::uint64_t parcel_bytes_ = 0;
  bool lent_ = false;
};

/// A result that lies in its slot, for the device.
struct slot_result {
  lease_ref lease;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::shared_ptr<kept_result> held;  ///< the slot is kept as long as this
};

}  // namespace penstock::jobs
