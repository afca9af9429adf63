// The workers' partitions that the GPU owner has mapped. Finds an upload's bytes in them. Pure; used by gpu_owner.
#pragma once

#include "actors/protocol/local/gpu_owner_messages.hpp"
#include "runtime/base/result.hpp"
#include "runtime/base/upload_order.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

namespace penstock::gpu_owner {

class attached_partitions {
 public:
  struct place {
    std::span<const std::byte> bytes;  ///< a whole slot; in a pool, a job's result
    std::uint64_t offset = 0;          ///< where the bytes begin in their partition
  };

  void add(const attach_partition& order) { all_[order.partition] = order; }
  void clear() { all_.clear(); }
  [[nodiscard]] bool contains(std::uint32_t partition) const { return all_.contains(partition); }
  /// Refuses (errc::protocol) an order for bytes outside the attached partitions.
  [[nodiscard]] result<place> find(const upload_order& order, std::uint32_t rows_max) const;

 private:
  std::map<std::uint32_t, attach_partition> all_;
};

}  // namespace penstock::gpu_owner
