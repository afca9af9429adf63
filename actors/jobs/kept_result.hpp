// A result in the caller's hands. It is in the slot where its worker wrote it, in its own memfd, in a copy,
// or in a device buffer of the ring. A result whose bytes no caller has requested can leave its slot at any
// time; once they are handed out, the result stays where it is. At least one slot of each place stays unlent,
// so that callers who keep results never block the worker: when all others are lent, a result is copied as
// soon as its bytes are requested (rule J11).
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
  // deliveries: for each slot, whether arguments are being copied into it. delivering: the number of such slots.
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

  /// Throws error (errc::usage) in a forked child. There, the destructor does not free the pool's memory.
  void require_home() const;
  /// Valid for the lifetime of this object.
  [[nodiscard]] std::span<const std::byte> bytes();
  /// Copies the result out of its slot, unless bytes() was called or it is in no slot. True: the result was
  /// moved, and `slot_left` will not be called for it.
  bool leave_slot();
  /// Frees the bytes. For the rest of its lifetime this object counts as `bytes` bytes.
  void count_as(std::uint64_t bytes);
  /// Keeps the result in its slot for the lifetime of this object: the device reads it there.
  void stay_in_slot();
  /// Sets the thread that has the result, or will get it, and must free it.
  void belongs_to(schedule::job_bounds::thread_number thread) noexcept;

  // For results on the device. These throw error (errc::usage) if the result is not there, or no longer there.
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

/// A result in its slot, for the device.
struct slot_result {
  lease_ref lease;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::shared_ptr<kept_result> held;  ///< holds the slot
};

}  // namespace penstock::jobs
