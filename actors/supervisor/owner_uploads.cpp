#include "actors/supervisor/owner_uploads.hpp"

#include "actors/protocol/fit.hpp"

namespace penstock::supervisor {

std::vector<protocol::to_owner> messages_of(const std::vector<upload_order>& uploads) {
  std::vector<protocol::wire_upload> batches;
  std::vector<protocol::wire_job_upload> jobs;
  for (const upload_order& o : uploads) {
    if (o.job) {
      jobs.push_back({o.upload, o.position, o.partition, o.slot, o.job->offset, o.job->bytes, o.job->program,
                      o.job->function});
    } else {
      batches.push_back({o.upload, o.position, o.epoch, o.sequence, o.partition, o.slot, o.samples});
    }
  }
  std::vector<protocol::to_owner> messages;
  for (protocol::upload_slots& part : protocol::split_to_fit(std::move(batches)))
    messages.emplace_back(std::move(part));
  for (protocol::upload_jobs& part : protocol::split_to_fit(std::move(jobs)))
    messages.emplace_back(std::move(part));
  return messages;
}

jobs::device_answer answer_of(const protocol::wire_job_answer& from) {
  using kind = jobs::device_answer::kind;
  jobs::device_answer answer{from.upload};
  if (from.how > 0) answer.how = from.how == 2 ? kind::too_large : kind::device;
  answer.text = from.text;
  const auto* const first = reinterpret_cast<const std::byte*>(from.bytes.data());
  answer.bytes.assign(first, first + from.bytes.size());
  return answer;
}

jobs::device_lost loss_of_jobs(const supervision::uploads_lost& lost) {
  jobs::device_lost loss{lost.era, std::nullopt};
  if (lost.blamed)
    loss.blamed =
        jobs::device_lost::blame{lost.blamed->position, lost.blamed->cause, lost.left_out.has_value()};
  return loss;
}

}  // namespace penstock::supervisor
