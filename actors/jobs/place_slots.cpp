#include "actors/jobs/place_slots.hpp"

#include "actors/jobs/copy_choice.hpp"
#include "runtime/arena/job_error.hpp"
#include "runtime/base/streaming_copy.hpp"
#include "runtime/base/units.hpp"
#include "runtime/base/write_all.hpp"

#include <time.h>

#include <cstring>

namespace penstock::jobs {
namespace {

/// Smaller arguments get a plain copy: measuring would cost more than it saves.
constexpr std::size_t streamed_min = 64U << 10U;

schedule::row_reading::state as_state(arena::row_state s) {
  using to = schedule::row_reading::state;
  switch (s) {
    case arena::row_state::begun: return to::begun;
    case arena::row_state::finished: return to::finished;
    case arena::row_state::failed: return to::failed;
    case arena::row_state::too_large: return to::too_large;
    case arena::row_state::revoked: return to::revoked;
    case arena::row_state::waiting: break;
  }
  return to::waiting;
}

/// A sealed memory file with these bytes.
result<unique_fd> parcel_of(std::span<const std::byte> bytes) {
  auto file = create_memory_file("penstock argument", "sending a large argument");
  if (!file) return file;
  if (const int status = write_all(file->get(), bytes); status != 0)
    return refuse_os(errc::out_of_memory, status,
                     fmt::format("writing an argument of {} into memory", bytes_for_people(bytes.size())));
  if (auto ok = seal_memory_file(file->get(), seal::size_and_contents, "sending a large argument"); !ok)
    return tl::unexpected(std::move(ok.error()));
  return file;
}

/// The CPU time of this thread: unlike a clock, it excludes other threads that ran in between.
nanoseconds time_of_this_thread() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + nanoseconds(now.tv_nsec);
}

void copy_argument(std::span<std::byte> to, std::span<const std::byte> from) {
  if (from.empty()) return;
  if (from.size() < streamed_min) {
    std::memcpy(to.data(), from.data(), from.size());
    return;
  }
  thread_local copy_choice choice;
  const copy_choice::way how = choice.next();
  const nanoseconds begun = time_of_this_thread();
  if (how == copy_choice::way::streaming) {
    streaming_copy(to, from);
  } else {
    std::memcpy(to.data(), from.data(), from.size());
  }
  choice.took(how, from.size(), time_of_this_thread() - begun);
}

}  // namespace

bool place_slots::travels_alone(std::uint64_t argument_bytes, std::uint64_t slot_bytes) {
  return argument_bytes + arena::job_table_bytes(1) > slot_bytes / 4 * 3;
}

std::span<std::byte> place_slots::memory_of(std::uint32_t index) const {
  return place_->memory->bytes().subspan(shape_.slot_offset(index), shape_.slot_bytes);
}

arena::job_slot place_slots::slot(std::uint32_t index) const {
  return arena::job_slot(memory_of(index));
}

bool place_slots::written_at_once(std::span<const slot_job> jobs) const {
  std::uint64_t bytes = 0;
  for (const slot_job& j : jobs) bytes += j.job->argument().size();
  return bytes <= written_at_once_max && !travels_alone(bytes, shape_.slot_bytes) &&
         place_->delivering.load(std::memory_order_acquire) == 0;
}

void place_slots::wait_for_delivery(std::uint32_t index) const {
  std::atomic<std::uint32_t>& under_way = place_->deliveries[index];
  while (under_way.load(std::memory_order_acquire) != 0) under_way.wait(1, std::memory_order_acquire);
}

void place_slots::write_jobs(const lease_ref& lease, std::span<const slot_job> jobs) {
  slot(lease.slot).write(lease.generation, orders_of(lease, jobs));
}

argument_delivery place_slots::deliver(const lease_ref& lease, std::span<const slot_job> jobs) {
  wait_for_delivery(lease.slot);
  const auto orders = orders_of(lease, jobs);
  argument_delivery made(place_, slot(lease.slot), lease);
  place_->deliveries[lease.slot].store(1, std::memory_order_relaxed);
  place_->delivering.fetch_add(1, std::memory_order_relaxed);
  std::uint64_t offset = arena::job_table_bytes(static_cast<std::uint32_t>(jobs.size()));
  made.rows_.reserve(jobs.size());
  for (std::size_t row = 0; row < jobs.size(); ++row) {
    made.rows_.push_back({jobs[row].job->shared_argument(), offset, orders[row].argument_elsewhere});
    offset = arena::job_next_argument(offset, orders[row].argument.size());
  }
  slot(lease.slot).write_table(lease.generation, orders);
  return made;
}

std::vector<arena::job_order> place_slots::orders_of(const lease_ref& lease,
                                                     std::span<const slot_job> jobs) const {
  std::vector<arena::job_order> orders;
  orders.reserve(jobs.size());
  for (std::uint32_t row = 0; row < jobs.size(); ++row) {
    const slot_job& j = jobs[row];
    const auto argument = j.job->argument();
    const bool alone = travels_alone(argument.size(), shape_.slot_bytes);
    j.job->leased_to(place_, {memory_of(lease.slot), lease.generation, row, j.attempt});
    orders.push_back({j.job->known_as(), j.function, j.attempt, j.job->rules().limit,
                      alone ? std::span<const std::byte>() : argument, alone});
  }
  return orders;
}

result<void> argument_delivery::copy(int parcels) {
  for (std::uint32_t number = 0; number < rows_.size(); ++number) {
    const row one = std::move(rows_[number]);
    const auto bytes = one.argument.bytes();
    if (!one.alone) {
      copy_argument(slot_.bytes(one.offset, bytes.size()), bytes);
      continue;
    }
    auto file = parcel_of(bytes);
    if (!file) return tl::unexpected(std::move(file.error()));
    const protocol::parcel_label label{lease_.slot, lease_.generation, number, bytes.size()};
    auto sent = protocol::send_parcel(parcels, label, file->get());
    if (!sent) return tl::unexpected(std::move(sent.error()));
    if (!*sent) return refuse(errc::protocol, "it does not read its large arguments");
  }
  return {};
}

argument_delivery::~argument_delivery() {
  if (!place_) return;
  place_->delivering.fetch_sub(1, std::memory_order_release);
  std::atomic<std::uint32_t>& under_way = place_->deliveries[lease_.slot];
  under_way.store(0, std::memory_order_release);
  under_way.notify_all();
}

schedule::lease_reading place_slots::read(const lease_ref& lease, std::uint32_t first,
                                          std::uint32_t end) const {
  schedule::lease_reading all{lease, {}, first};
  const arena::job_slot table = slot(lease.slot);
  const auto there = table.rows(lease.generation);
  for (std::uint32_t row = first; row < end; ++row) {
    schedule::row_reading reading;
    reading.at = schedule::row_reading::state::unreadable;
    if (there && row < *there) {
      if (const auto found = table.read(row)) {
        reading.at = as_state(found->state);
        reading.begun = found->begun;
        reading.busy = found->busy;
        const bool finished = found->state == arena::row_state::finished;
        reading.keeps_slot = finished && !found->result_elsewhere && found->result_bytes > copied_at_once;
        if (finished && !reading.keeps_slot) reading.bytes_elsewhere = found->result_bytes;
      }
    }
    all.rows.push_back(reading);
  }
  return all;
}

bool place_slots::revoke(const lease_ref& lease, std::uint32_t row) const {
  return slot(lease.slot).revoke(row);
}

bool place_slots::result_elsewhere(const lease_ref& lease, std::uint32_t row) const {
  const auto found = slot(lease.slot).read(row);
  return found && found->result_elsewhere;
}

result<std::shared_ptr<kept_result>> place_slots::result_of(std::uint64_t job, const lease_ref& lease,
                                                            std::uint32_t row,
                                                            std::optional<protocol::parcel> parcel,
                                                            const std::shared_ptr<const slot_left>& left,
                                                            const std::shared_ptr<admission>& meter) const {
  auto found = slot(lease.slot).read(row);
  if (!found) return tl::unexpected(std::move(found.error()));
  if (found->result_elsewhere) {
    if (!parcel)
      return refuse(errc::protocol, "its worker announced a result outside the slot, but did not send one");
    mapping memory = map_copy_on_write(parcel->file.get(), {0, parcel->label.bytes});
    if (!memory && parcel->label.bytes > 0)
      return refuse_os(errc::out_of_memory, errno,
                       fmt::format("mapping a result of {}", bytes_for_people(parcel->label.bytes)));
    return std::make_shared<kept_result>(job, std::move(memory), parcel->label.bytes, meter);
  }
  const std::span<const std::byte> bytes = slot(lease.slot).bytes(found->result_offset, found->result_bytes);
  if (bytes.size() <= copied_at_once)
    return std::make_shared<kept_result>(job, std::vector<std::byte>(bytes.begin(), bytes.end()), meter);
  return std::make_shared<kept_result>(job, kept_result::in_slot{place_, lease, bytes, left}, meter);
}

result<slot_result> place_slots::result_in_slot(std::uint64_t job, const lease_ref& lease, std::uint32_t row,
                                                const std::shared_ptr<const slot_left>& left,
                                                const std::shared_ptr<admission>& meter) const {
  auto found = slot(lease.slot).read(row);
  if (!found) return tl::unexpected(std::move(found.error()));
  if (found->result_elsewhere) {
    return refuse(errc::out_of_memory,
                  "its result of {} did not fit in its slot, and the device can read it only from there: "
                  "raise [loader] slot_bytes ({})",
                  bytes_for_people(found->result_bytes), bytes_for_people(shape_.slot_bytes));
  }
  const std::span<const std::byte> bytes = slot(lease.slot).bytes(found->result_offset, found->result_bytes);
  return slot_result{
      lease, found->result_offset, found->result_bytes,
      std::make_shared<kept_result>(job, kept_result::in_slot{place_, lease, bytes, left}, meter)};
}

job_failure place_slots::failure_of(const lease_ref& lease, std::uint32_t row,
                                    std::optional<protocol::parcel> parcel) const {
  job_failure why;
  const auto found = slot(lease.slot).read(row);
  if (!found) {
    why.text = found.error().message;
    return why;
  }
  mapping elsewhere;
  std::span<const std::byte> bytes;
  if (!found->result_elsewhere) {
    bytes = slot(lease.slot).bytes(found->result_offset, found->result_bytes);
  } else if (parcel) {
    elsewhere = map_read_only(parcel->file.get(), {0, parcel->label.bytes});
    bytes = elsewhere.bytes();  // empty: not enough memory to map it
  }
  auto text = arena::job_exception_from(bytes);
  if (!text) {
    why.text = text.error().message;
    return why;
  }
  why.type = std::move(text->type);
  why.text = std::move(text->text);
  why.traceback = std::move(text->traceback);
  return why;
}

}  // namespace penstock::jobs
