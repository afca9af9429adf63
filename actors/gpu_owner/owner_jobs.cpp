#include "actors/gpu_owner/owner_jobs.hpp"

#include <algorithm>
#include <utility>

namespace penstock::gpu_owner {
namespace {

// Answers are collected while more results are ready.
constexpr std::size_t answers_a_message = 16;
constexpr std::size_t text_bytes_max = 16U << 10U;
constexpr std::size_t answer_overhead_max = 1024;
static_assert(2 * program_result_bytes_max + answers_a_message * text_bytes_max + answer_overhead_max <=
              protocol::frame_bytes_max);

}  // namespace

upload_batches orders_of(protocol::upload_jobs order) {
  upload_batches all;
  all.orders.reserve(order.uploads.size());
  for (protocol::wire_job_upload& u : order.uploads) {
    all.orders.push_back({u.upload,
                          0,
                          0,
                          u.job,
                          0,
                          0,
                          u.partition,
                          u.slot,
                          {u.job},
                          job_upload{u.offset, u.bytes, u.program, false, std::move(u.function)}});
  }
  return all;
}

result<void> owner_jobs::run() {
  while (true) {
    if (deps_.flight != nullptr) deps_.flight->wait_begins(std::chrono::steady_clock::now());
    auto taken = deps_.consumer->take();
    if (deps_.flight != nullptr) deps_.flight->wait_ends(std::chrono::steady_clock::now());
    if (auto* why = std::get_if<failure>(&taken)) return tl::unexpected(std::move(*why));
    if (std::holds_alternative<hand_over::stream_ended>(taken)) return {};
    if (auto ok = answer(std::move(std::get<ready_batch>(taken))); !ok) {
      send();  // reports the jobs before it, which are complete
      return ok;
    }
  }
}

result<void> owner_jobs::answer(ready_batch job) {
  // If this job kills us, the session finds it here.
  const auto mark = static_cast<std::uint32_t>(job.upload & generation_mask);
  if (deps_.flight != nullptr)
    deps_.flight->publish({arena::phase::loading, 0, 0, mark}, job.job->function);
  auto done = programs_.run(job);
  if (!done) return tl::unexpected(std::move(done.error()));
  if (!job.refused) deps_.give_back(job.buffer);
  const auto* const first = reinterpret_cast<const char*>(done->bytes.data());
  done->text.resize(std::min(done->text.size(), text_bytes_max));
  answers_.push_back({done->upload, static_cast<std::uint32_t>(done->how), std::move(done->text),
                      std::string(first, done->bytes.size())});
  answer_bytes_ += done->bytes.size();
  if (answers_.size() == answers_a_message || answer_bytes_ >= program_result_bytes_max ||
      !deps_.consumer->has_batch())
    send();
  // Clear the job's mark only after send(): until then, a death would leave the job unanswered.
  if (deps_.flight != nullptr) {
    deps_.flight->sample_done();
    deps_.flight->rest();
  }
  return {};
}

void owner_jobs::send() {
  if (answers_.empty()) return;
  protocol::jobs_answered news;
  news.answers = std::exchange(answers_, {});
  answer_bytes_ = 0;
  const upload_counts counts = deps_.counts();
  news.uploads = counts.uploads;
  news.bytes = counts.bytes;
  news.pinned = counts.pinned;
  deps_.link->send(news);
}

}  // namespace penstock::gpu_owner
