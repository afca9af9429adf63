#include "actors/supervisor/owner_uploads.hpp"

#include "actors/protocol/fit.hpp"
#include "actors/protocol/tensors.hpp"

namespace penstock::supervisor {
namespace {

/// Shows where the batch is until the acknowledgement brings the owner's own times. Counts the batch as converted,
/// too: a conversion takes no longer than the message takes to arrive.
void note_copied(batch_times* times, const upload_order* batch, steady_time now) {
  if (times == nullptr || batch == nullptr) return;
  times->note(batch->position, batch_stage::copied, now);
  times->note(batch->position, batch_stage::ready, now);
}

void note_times(batch_times* times, stream_position position, const protocol::wire_delivery& delivery) {
  if (times == nullptr) return;
  const auto note = [&](batch_stage stage, std::int64_t ns) {
    if (ns > 0) times->note(position, stage, steady_time(nanoseconds(ns)));
  };
  if (delivery.demanded_ns > 0) times->note_demanded(position, steady_time(nanoseconds(delivery.demanded_ns)));
  note(batch_stage::submitted, delivery.submitted_ns);
  note(batch_stage::copied, delivery.copied_ns);
  note(batch_stage::ready, delivery.ready_ns);
  note(batch_stage::taken, delivery.taken_ns);
  note(batch_stage::released, delivery.released_ns);
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

}  // namespace

const protocol::prepare_owner& owner_introduction::prepare(const gpu_owner::prepare_device& order) {
  std::vector<tensor_spec> tensors;
  // The owner adds the layout's length tensors itself.
  const batch_layout& slot = order.plan->slot;
  for (std::size_t i = 0; i < slot.described; ++i) tensors.push_back(slot.tensors[i].spec);
  preparation_ = protocol::prepare_owner{protocol::as_wire(tensors), slot.rows_max, order.shape.slot_bytes,
                                         order.shape.slots, order.shape.partitions};
  return *preparation_;
}

std::vector<protocol::to_owner> owner_introduction::messages(std::uint32_t incarnation,
                                                             const std::optional<std::string>& snapshot,
                                                             std::uint64_t base) const {
  protocol::open_owner begin = begin_;
  begin.incarnation = incarnation;
  begin.restores = snapshot.has_value();
  begin.snapshot = snapshot.value_or("");
  begin.base = base;
  std::vector<protocol::to_owner> all{std::move(begin)};
  if (preparation_) all.emplace_back(*preparation_);
  for (const std::uint32_t p : partitions_) all.emplace_back(protocol::map_partition{p});
  return all;
}

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

std::vector<std::uint64_t> released_by(const protocol::slots_copied& news,
                                       supervision::owner_supervision& owner, std::uint32_t incarnation,
                                       steady_time now, batch_times* times) {
  std::vector<std::uint64_t> released;
  for (const std::uint64_t upload : news.uploads) {
    if (!owner.copied(incarnation, now, upload)) break;
    released.push_back(upload);
    note_copied(times, owner.orders().find(upload), now);
  }
  return released;
}

std::vector<scheduler::batch_delivered> deliveries_of(const protocol::batches_delivered& news,
                                                      supervision::owner_supervision& owner,
                                                      std::uint32_t incarnation, steady_time now,
                                                      batch_times* times) {
  std::vector<scheduler::batch_delivered> all;
  for (const protocol::wire_delivery& d : news.deliveries) {
    const upload_order* batch = owner.orders().find(d.upload);
    const stream_position position = batch != nullptr ? batch->position : 0;
    if (!owner.delivered(incarnation, now, d.upload)) return all;
    note_times(times, position, d);
    // The message may have come long after the sink took the first of its batches.
    const std::optional<steady_time> taken =
        d.released_ns > 0 ? std::optional(std::min(steady_time(nanoseconds(d.released_ns)), now)) : std::nullopt;
    all.push_back({d.upload, news.digests ? std::optional(d.digest) : std::nullopt, std::nullopt, taken});
  }
  if (news.snapshots) owner.keep_snapshot(news.snapshot);
  return all;
}

std::vector<jobs::device_answer> answers_of(const protocol::jobs_answered& news,
                                            supervision::owner_supervision& owner, std::uint32_t incarnation,
                                            steady_time now) {
  std::vector<jobs::device_answer> answers;
  for (const protocol::wire_job_answer& a : news.answers) {
    if (!owner.delivered(incarnation, now, a.upload)) break;
    answers.push_back(answer_of(a));
  }
  return answers;
}

void note_taken(batch_times* times, const upload_order* batch, steady_time since) {
  if (times != nullptr && batch != nullptr) times->note(batch->position, batch_stage::taken, since);
}

scheduler::owner_lost loss_of_batches(const supervision::uploads_lost& lost) {
  if (!lost.left_out) return {lost.era, std::nullopt};
  return {lost.era, scheduler::poison_batch{lost.left_out->position, lost.left_out->reason}};
}

jobs::device_lost loss_of_jobs(const supervision::uploads_lost& lost) {
  jobs::device_lost loss{lost.era, std::nullopt};
  if (lost.blamed)
    loss.blamed =
        jobs::device_lost::blame{lost.blamed->position, lost.blamed->cause, lost.left_out.has_value()};
  return loss;
}

}  // namespace penstock::supervisor
