#include "actors/remote/hosted_jobs.hpp"

#include "actors/remote/received_file.hpp"
#include "runtime/base/ids.hpp"

#include <cerrno>

namespace penstock::hosts {
namespace {

using namespace std::chrono_literals;
using arena::row_state;

constexpr nanoseconds parcel_deadline = 5s;

/// The rule of a pool: in the slot, the argument would leave less than a quarter of the space.
bool is_sent_alone(std::uint64_t bytes, std::uint64_t slot_bytes) {
  return bytes + arena::job_table_bytes(1) > slot_bytes / 4 * 3;
}

}  // namespace

hosted_jobs::hosted_jobs(std::shared_ptr<host_program> program, nanoseconds silence_max)
    : program_(std::move(program)), silence_max_(silence_max) {}

hosted_jobs::~hosted_jobs() {
  program_->files().gone(this);
}

result<void> hosted_jobs::give(const protocol::parcel_label& label, const unique_fd& file) const {
  const auto sent = protocol::send_parcel(parcels_.get(), label, file.get(), parcel_deadline);
  if (!sent || !*sent) return refuse(errc::system, "the worker does not accept a file");
  return {};
}

// ---- jobs ---------------------------------------------------------------------------------------------------

result<protocol::to_worker> hosted_jobs::take(host_stream& from, const job_follows& job) {
  if (!slots_ || job_) return refuse(errc::protocol, "it sent a job at the wrong time");
  generation_ = generation_ % generation_mask + 1;
  const protocol::run_jobs lease{0, generation_, 1};
  arena::job_order order{job.job, job.function, job.attempt, nanoseconds(job.limit_ns), {}, false};
  if (is_sent_alone(job.bytes, slots_->slot(0).size())) {
    auto file = received_file::make(job.bytes, "a large argument");
    if (!file) return tl::unexpected(std::move(file.error()));
    if (auto ok = from.read_raw(file->room(), silence_max_); !ok) return tl::unexpected(std::move(ok.error()));
    auto sealed = std::move(*file).seal();
    if (!sealed) return tl::unexpected(std::move(sealed.error()));
    order.argument_elsewhere = true;
    slot().write_table(generation_, std::span(&order, 1));
    if (auto ok = give({lease.slot, lease.generation, 0, job.bytes}, *sealed); !ok) return tl::unexpected(std::move(ok.error()));
  } else {
    const std::span<std::byte> room = slot().bytes(arena::job_table_bytes(1), job.bytes);
    order.argument = room;
    slot().write_table(generation_, std::span(&order, 1));
    if (auto ok = from.read_raw(room, silence_max_); !ok) return tl::unexpected(std::move(ok.error()));
  }
  job_ = job.job;
  last_.reset();
  return lease;
}

result<void> hosted_jobs::ended(host_stream& to, const protocol::jobs_done& news, bool digests) {
  if (!job_ || news.slot != 0 || news.generation != generation_ || news.rows != 1)
    return refuse(errc::protocol, "its worker reported the end of a job that it does not have");
  outcome& last = last_.emplace(outcome{});  // clang does not find a default constructor for emplace()
  const auto row = slot().read(0);
  last.news.how = static_cast<std::uint8_t>(row_state::failed);
  const bool over = row && (row->state == row_state::finished || row->state == row_state::failed || row->state == row_state::too_large);
  if (over) {
    last.news.how = static_cast<std::uint8_t>(row->state);
    last.news.busy_ns = row->busy.count();
    if (row->result_elsewhere) {
      auto parcel = protocol::receive_parcel(parcels_.get(), parcel_deadline);
      if (!parcel || !*parcel) return refuse(errc::system, "the result of job {} did not arrive", *job_);
      last.elsewhere = map_read_only((*parcel)->file.get(), {0, (*parcel)->label.bytes});
      if (!last.elsewhere) return refuse_os(errc::out_of_memory, errno, "mapping a result");
      last.bytes = last.elsewhere.bytes();
    } else {
      last.bytes = slot().bytes(row->result_offset, row->result_bytes);
    }
  }
  last.news.bytes = last.bytes.size();
  last.digest = digests;
  job_.reset();
  return send(to);
}

result<void> hosted_jobs::send(host_stream& to) const {
  to.put(from_host(last_->news));
  return to.flush(silence_max_, last_->bytes, last_->digest);
}

result<void> hosted_jobs::send_again(host_stream& to) const {
  return last_ ? send(to) : result<void>();
}

std::int64_t hosted_jobs::mark() const {
  return job_ && program_->marks() != nullptr ? program_->marks()->of(*job_) : -1;
}

// ---- files --------------------------------------------------------------------------------------------------

result<void> hosted_jobs::answer(host_stream& to) {
  std::vector<std::uint64_t> later;
  for (const std::uint64_t number : std::exchange(offered_, {})) {
    const host_files::standing standing = program_->files().look(number, this);
    if (standing == host_files::standing::on_its_way) {
      later.push_back(number);
      continue;
    }
    if (standing == host_files::standing::here) {
      const shelved_file file = program_->files().find(number);
      if (auto ok = give({protocol::shared_file_slot, 0, static_cast<std::uint32_t>(number), file.bytes}, *file.file); !ok) return ok;
    }
    const bool wanted = standing == host_files::standing::to_be_fetched;
    to.put(from_host(file_answer{number, wanted}));
    if (wanted) later.push_back(number);  // this connection fetches it; answer again when it has arrived
  }
  offered_ = std::move(later);
  return {};
}

result<void> hosted_jobs::take_file(host_stream& from, const file_follows& news) {
  if (news.bytes == 0) {
    std::erase(offered_, news.number);
    from.put(from_host(file_answer{news.number, false}));
    program_->files().arrived(news.number, {});
    return {};
  }
  auto file = received_file::make(news.bytes, "a file of the session");
  if (!file) return tl::unexpected(std::move(file.error()));
  if (auto ok = from.read_raw(file->room(), silence_max_); !ok) return ok;
  auto sealed = std::move(*file).seal();
  if (!sealed) return tl::unexpected(std::move(sealed.error()));
  program_->files().arrived(news.number, {std::make_shared<const unique_fd>(std::move(*sealed)), news.bytes});
  return {};
}

}  // namespace penstock::hosts
