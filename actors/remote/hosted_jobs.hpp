// The jobs of one worker on a loader host: gives them to the worker one at a time, as a pool would, and sends what they return.
// Used by hosted_worker, on its connection's thread.
#pragma once

#include "actors/protocol/parcels.hpp"
#include "actors/protocol/wire.hpp"
#include "actors/remote/host_program.hpp"
#include "actors/remote/host_stream.hpp"
#include "runtime/arena/arena.hpp"
#include "runtime/arena/job_slot.hpp"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace penstock::hosts {

class hosted_jobs {
 public:
  /// A transfer that moves nothing for `silence_max` ends the connection.
  hosted_jobs(std::shared_ptr<host_program> program, nanoseconds silence_max);
  ~hosted_jobs();
  hosted_jobs(const hosted_jobs&) = delete;
  hosted_jobs& operator=(const hosted_jobs&) = delete;

  /// Call when the worker has started. `parcels`: the host's end of its socket.
  void started(unique_fd parcels) { parcels_ = std::move(parcels); }
  void assigned(arena::slots_view slots) { slots_.emplace(std::move(slots)); }

  /// Receives a job's argument. Returns what to send to the worker. Refuses what host_stream and the kernel (errc::system) refuse.
  result<protocol::to_worker> take(host_stream& from, const job_follows& job);
  void offered(const file_offered& news) { offered_.push_back(news.number); }
  result<void> take_file(host_stream& from, const file_follows& news);
  /// Answers offers, and gives the worker the files that are here.
  result<void> answer(host_stream& to);
  /// Call when the worker has ended its job: sends the outcome.
  result<void> ended(host_stream& to, const protocol::jobs_done& news, bool digests);
  result<void> send_again(host_stream& to) const;

  [[nodiscard]] bool is_busy() const noexcept { return job_.has_value() || !offered_.empty(); }
  /// What the running job has marked; -1: nothing.
  [[nodiscard]] std::int64_t mark() const;

 private:
  struct outcome {
    job_over news;
    std::span<const std::byte> bytes;
    mapping elsewhere;
    bool digest = false;
  };
  [[nodiscard]] arena::job_slot slot() const { return arena::job_slot(slots_->slot(0)); }
  result<void> give(const protocol::parcel_label& label, const unique_fd& file) const;
  result<void> send(host_stream& to) const;

  const std::shared_ptr<host_program> program_;
  const nanoseconds silence_max_;
  unique_fd parcels_;
  std::optional<arena::slots_view> slots_;
  std::uint32_t generation_ = 0;
  std::optional<std::uint64_t> job_;
  std::optional<outcome> last_;  // kept because the session may ask for it again
  std::vector<std::uint64_t> offered_;
};

}  // namespace penstock::hosts
