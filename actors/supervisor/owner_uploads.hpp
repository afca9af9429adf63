// Converts between the keeper's types and the messages of the owner's process: uploads, the orders that must come
// before them, and their outcomes. Records when batches pass the owner's stages. Pure; used by the owner's keeper.
#pragma once

#include "actors/protocol/link.hpp"
#include "actors/protocol/local/gpu_owner_messages.hpp"
#include "actors/protocol/local/job_messages.hpp"
#include "actors/protocol/local/scheduler_messages.hpp"
#include "runtime/base/batch_times.hpp"
#include "runtime/base/upload_order.hpp"
#include "runtime/supervision/owner_supervision.hpp"

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace penstock::supervisor {

/// What every incarnation must get first: everything that the session has sent so far, in order.
class owner_introduction {
 public:
  owner_introduction() = default;
  explicit owner_introduction(protocol::open_owner begin) : begin_(std::move(begin)) {}
  /// Returns the order as a message.
  const protocol::prepare_owner& prepare(const gpu_owner::prepare_device& order);
  void attach(std::uint32_t partition) { partitions_.insert(partition); }
  /// `base`: the step of the snapshot, in a group with a communicator.
  [[nodiscard]] std::vector<protocol::to_owner> messages(std::uint32_t incarnation,
                                                         const std::optional<std::string>& snapshot,
                                                         std::uint64_t base) const;

 private:
  protocol::open_owner begin_;
  std::optional<protocol::prepare_owner> preparation_;
  std::set<std::uint32_t> partitions_;
};

/// Messages in order, each fitting a frame. Either all uploads are batches, or all are job results.
[[nodiscard]] std::vector<protocol::to_owner> messages_of(const std::vector<upload_order>& uploads);

// These handle an incarnation's reports. They stop at the first upload that the incarnation does not have, and the
// supervision then ends it. `times` may be null.
[[nodiscard]] std::vector<std::uint64_t> released_by(const protocol::slots_copied& news,
                                                     supervision::owner_supervision& owner,
                                                     std::uint32_t incarnation, steady_time now,
                                                     batch_times* times);
/// Keeps the snapshot for the next incarnation.
[[nodiscard]] std::vector<scheduler::batch_delivered> deliveries_of(const protocol::batches_delivered& news,
                                                                    supervision::owner_supervision& owner,
                                                                    std::uint32_t incarnation,
                                                                    steady_time now, batch_times* times);
[[nodiscard]] std::vector<jobs::device_answer> answers_of(const protocol::jobs_answered& news,
                                                          supervision::owner_supervision& owner,
                                                          std::uint32_t incarnation, steady_time now);
/// Records as taken a batch that the sink has been working on for a long time.
void note_taken(batch_times* times, const upload_order* batch, steady_time since);

[[nodiscard]] scheduler::owner_lost loss_of_batches(const supervision::uploads_lost& lost);
[[nodiscard]] jobs::device_lost loss_of_jobs(const supervision::uploads_lost& lost);

}  // namespace penstock::supervisor
