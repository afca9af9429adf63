// Converts uploads and their outcomes between the keeper's types and the messages of the owner's process.
// Pure; used by the owner's keeper.
#pragma once

#include "actors/protocol/link.hpp"
#include "actors/protocol/local/job_messages.hpp"
#include "runtime/base/upload_order.hpp"
#include "runtime/supervision/owner_supervision.hpp"

#include <vector>

namespace penstock::supervisor {

/// Messages in order, each fitting a frame. Either all uploads are batches, or all are job results.
[[nodiscard]] std::vector<protocol::to_owner> messages_of(const std::vector<upload_order>& uploads);

[[nodiscard]] jobs::device_answer answer_of(const protocol::wire_job_answer& from);
[[nodiscard]] jobs::device_lost loss_of_jobs(const supervision::uploads_lost& lost);

}  // namespace penstock::supervisor
