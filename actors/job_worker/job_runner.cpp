#include "actors/job_worker/job_runner.hpp"

#include "actors/job_worker/thrown.hpp"
#include "runtime/base/patient_deadline.hpp"
#include "runtime/base/stage_range.hpp"
#include "runtime/base/write_all.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <utility>

namespace penstock::job_worker {
namespace {

using namespace std::chrono_literals;
using arena::row_state;
using clock = std::chrono::steady_clock;

constexpr auto report_every = 1ms;
// How often to poll the link: a poll is a system call, and jobs may be shorter than one.
constexpr auto look_every = 50us;
constexpr auto parcel_deadline = 10s;  // when it has passed, the session counts as gone
constexpr auto parcel_slice = 50ms;    // between slices, check for a revoked row and for stop_work
constexpr int exit_code_of_strays = 1;

}  // namespace

/// How a job ended.
struct job_runner::ending {
  row_state how = row_state::finished;
  arena::job_exception_text error{};  // empty if finished
  nanoseconds busy{0};

  void fail(row_state as, std::string text) {
    how = as;
    error = {"penstock::error", std::move(text), {}};
  }
};

/// The current lease, and how much of it has been reported.
class job_runner::current_lease {
 public:
  current_lease(const job_context& context, const protocol::run_jobs& order, std::uint64_t first_result)
      : table(context.slots.slot(order.slot)),
        room(table, first_result, context.elsewhere_max),
        context_(context),
        order_(order) {}

  [[nodiscard]] const protocol::run_jobs& order() const noexcept { return order_; }
  [[nodiscard]] bool told_to_stop(steady_time now) {
    if (now - looked_ < look_every) return false;
    looked_ = now;
    return context_.told_to_stop();
  }
  /// Records that all rows before `rows` have ended. Reports them if a report is due.
  void over(std::uint32_t rows, steady_time now) {
    over_ = rows;
    if (now - reported_at_ < report_every) return;
    report();
    reported_at_ = now;
  }
  void report() {
    if (over_ == reported_) return;
    reported_ = over_;
    context_.report({order_.slot, order_.generation, over_});
  }

  const arena::job_slot table;
  result_room room;
  bool gets_parcels = false;

 private:
  const job_context& context_;
  const protocol::run_jobs order_;
  std::uint32_t over_ = 0;
  std::uint32_t reported_ = 0;
  steady_time reported_at_ = clock::now();
  steady_time looked_ = reported_at_;
};

/// What a running function can call: to get memory for its result, and to name its current work.
class job_runner::described_room final : public JobCall::room {
 public:
  described_room(job_runner& runner, current_lease& lease) : runner_(runner), lease_(lease) {}

  std::span<std::byte> reserve(std::uint64_t bytes) override { return lease_.room.reserve(bytes); }
  void shorten(std::uint64_t bytes) override { lease_.room.shorten(bytes); }
  void describe(std::string_view work) override {
    if (!has_forked()) runner_.notes_.describe(work, clock::now());
  }
  void sample(std::uint64_t index, std::string_view name) override {
    if (!has_forked()) runner_.notes_.sample(index, name, clock::now());
  }
  JobCall::slow_load slow_samples() override { return has_forked() ? JobCall::slow_load() : runner_.notes_.slow_samples(clock::now()); }

 private:
  /// Whether the function has forked, and this is the child.
  [[nodiscard]] bool has_forked() const { return runner_.process_.left(); }

  job_runner& runner_;
  current_lease& lease_;
};

job_runner::job_runner(const job_context& context)
    : context_(context), arguments_(context.parcels), notes_(context.flight) {
  if (cuda_.found()) why_ = child::cuda_text(context_.me.worker, {});
}

result<job_runner::outcome> job_runner::run(const protocol::run_jobs& order) {
  if (order.slot >= context_.slots.slots()) {
    return refuse(errc::protocol, "it received a lease of slot {}, but there are only {} slots", order.slot,
                  context_.slots.slots());
  }
  const arena::job_slot table(context_.slots.slot(order.slot));
  const auto rows = table.rows(order.generation);
  if (!rows) return damaged(order, rows.error().message);
  if (*rows != order.rows)
    return damaged(order, fmt::format("it has {} rows, but should have {}", *rows, order.rows));
  const auto first_result = table.first_result(*rows);
  if (!first_result) return damaged(order, first_result.error().message);

  current_lease lease(context_, order, *first_result);
  outcome end = outcome::done;
  for (std::uint32_t row = 0; row < *rows; ++row) {
    const auto stepped = run_row(lease, row);
    if (!stepped) {
      lease.report();
      return tl::unexpected(stepped.error());
    }
    if (*stepped == step::stopped) {
      end = outcome::stopped;
      break;
    }
    const steady_time now = clock::now();
    lease.over(row + 1, now);
    if (row + 1 == *rows) lease.report();  // report first: the caller need not wait for the clean-up below
    settle_process();
    if (!why_.empty()) {
      end = outcome::unfit;
      break;
    }
    if (row + 1 < *rows && lease.told_to_stop(now)) {
      end = outcome::stopped;
      break;
    }
  }
  if (lease.gets_parcels) arguments_.lease_over(order);
  lease.report();
  context_.flight.rest();
  std::fflush(stdout);  // forward output to the log promptly, even an unfinished line
  return end;
}

tl::unexpected<failure> job_runner::damaged(const protocol::run_jobs& lease, const std::string& how) {
  return refuse(errc::system, "the table of slot {} is damaged (a job overwrote it): {}", lease.slot, how);
}

result<job_runner::step> job_runner::run_row(current_lease& lease, std::uint32_t row) {
  const auto job = lease.table.read(row);
  if (!job) return damaged(lease.order(), job.error().message);
  if (job->state == row_state::revoked) {
    lease.gets_parcels |= job->argument_elsewhere;
    return step::over;
  }
  mapping elsewhere;
  std::span<const std::byte> argument = lease.table.bytes(job->argument_offset, job->argument_bytes);
  if (job->argument_elsewhere) {
    lease.gets_parcels = true;
    const auto fetched = fetch_argument(lease, row, *job, elsewhere, argument);
    if (!fetched || *fetched == step::stopped) return fetched;
  }
  const steady_time now = clock::now();
  const std::string_view function = job->function < context_.functions.size() ? std::string_view(context_.functions[job->function].name) : "";
  notes_.begins({arena::phase::loading, lease.order().slot, row, lease.order().generation}, *job, function, now);
  if (!lease.table.begin(row, now)) {
    const auto why_not = lease.table.read(row);
    if (why_not && why_not->state == row_state::revoked) return step::over;
    return damaged(lease.order(), fmt::format("row {} cannot be started, but was not revoked", row));
  }
  lease.room.forget();
  described_room room(*this, lease);
  ending how = call(*job, argument, lease.room, room);
  how.busy = clock::now() - now;
  context_.flight.publish(arena::phase::checking);
  look_after(*job, lease.room, how);
  // A result outside the slot needs memory files and descriptors, so restore the resource limits first.
  unsettled_ = job->job;
  if (how.how != row_state::finished || lease.room.lies_elsewhere()) settle_process();
  hand_over(lease, row, std::move(how));
  context_.flight.sample_done();
  return step::over;
}

/// If the row is revoked meanwhile, its argument is empty: the row will not start.
result<job_runner::step> job_runner::fetch_argument(current_lease& lease, std::uint32_t row,
                                                    const arena::job_reading& job, mapping& elsewhere,
                                                    std::span<const std::byte>& argument) {
  patient_deadline until(parcel_deadline, parcel_slice);
  until.restart(clock::now());
  while (!until.is_over(clock::now())) {
    const auto came = arguments_.take(lease.order(), row, parcel_slice);
    // Not a protocol violation by the session: a job has closed the socket or read from it.
    if (!came) return refuse(errc::system, "the argument of job {}: {}", job.job, came.error().message);
    if (came->has_value()) {
      elsewhere = map_read_only((*came)->file.get(), {0, (*came)->label.bytes});
      if (!elsewhere)
        return refuse_os(errc::out_of_memory, errno, fmt::format("mapping the argument of job {}", job.job));
      argument = elsewhere.bytes();
      return step::over;
    }
    const auto now = lease.table.read(row);
    if (now && now->state == row_state::revoked) return step::over;
    if (lease.told_to_stop(clock::now())) return step::stopped;
  }
  return refuse(errc::timed_out, "the argument of job {} did not arrive", job.job);
}

job_runner::ending job_runner::call(const arena::job_reading& job, std::span<const std::byte> argument,
                                    const result_room& room, JobCall::room& given_room) {
  ending how;
  if (job.function >= context_.functions.size()) {
    how.fail(row_state::failed, fmt::format("there is no function {}; this worker program has {}", job.function, context_.functions.size()));
    return how;
  }
  JobCall given(argument, given_room, job.job, job.attempt, context_.me.worker);
  try {
    const stage_range range("job");
    context_.functions[job.function].run(given);
  } catch (const error& e) {
    how.how = room.refused() && e.code() == errc::out_of_memory ? row_state::too_large : row_state::failed;
    how.error = thrown();
  } catch (...) {
    how.how = row_state::failed;
    how.error = thrown();
  }
  if (process_.left()) {
    // This is a child that the function forked and that returned from the function. It must not touch
    // anything that the session sees.
    static_cast<void>(
        write_all(STDERR_FILENO, fmt::format("penstock: a process that job {} forked returned from its "
                                             "function; it ends here\n",
                                             job.job)));
    ::_exit(exit_code_of_strays);
  }
  return how;
}

/// Checks for side effects: writes beyond its result, CUDA.
void job_runner::look_after(const arena::job_reading& job, const result_room& room, ending& how) {
  if (const std::uint64_t beyond = room.overrun(); beyond > 0) {
    how.fail(row_state::too_large,
             fmt::format("it reserved {} bytes for its result, but wrote at least {}", room.room(),
                         room.room() + beyond));
  }
  if (cuda_.newly_found()) {
    how.fail(row_state::failed, child::cuda_text(context_.me.worker, how.error.text));
    why_ = fmt::format("job {} loaded CUDA into this worker", job.job);
  }
}

/// Restores the process's settings for the next job.
void job_runner::settle_process() {
  if (unsettled_ == 0) return;
  const std::uint64_t job = std::exchange(unsettled_, 0);
  if (!context_.settings.restore())
    why_ = fmt::format("job {} changed {}, which cannot be restored", job, context_.settings.lost());
}

void job_runner::hand_over(current_lease& lease, std::uint32_t row, ending how) {
  result_room::place place;
  if (how.how == row_state::finished) {
    auto kept = lease.room.keep();
    if (kept) {
      place = std::move(*kept);
    } else {
      how.fail(row_state::failed, kept.error().message);
    }
  }
  if (place.file && !send_elsewhere(lease, row, place)) {
    how.fail(row_state::failed,
             fmt::format("its result of {} bytes could not be sent: the session does not accept it", place.bytes));
  }
  if (how.how != row_state::finished) place = keep_error(lease.room, how);
  if (how.how != row_state::finished && place.file && !send_elsewhere(lease, row, place)) place = {};
  lease.table.end(row, how.how, place.offset, place.bytes, static_cast<bool>(place.file), how.busy);
  if (!place.file) return;
  lease.over(row + 1, clock::now());
  lease.report();  // this result takes memory from the pool, so report the finished rows first
}

/// Stores the error where there is space for it; cuts it if necessary.
result_room::place job_runner::keep_error(result_room& room, ending& how) const {
  for (const bool elsewhere : {true, false}) {
    room.forget();
    const auto bytes = arena::as_bytes(how.error, elsewhere ? room.most() : room.room_in_slot());
    try {
      const std::span<std::byte> to = room.reserve(bytes.size());
      std::ranges::copy(bytes, to.begin());
    } catch (const error&) {
      continue;  // out of memory or descriptors
    }
    if (auto kept = room.keep()) return std::move(*kept);
  }
  return {};
}

bool job_runner::send_elsewhere(current_lease& lease, std::uint32_t row, const result_room::place& place) {
  const protocol::parcel_label label{lease.order().slot, lease.order().generation, row, place.bytes};
  auto sent = protocol::send_parcel(context_.parcels, label, place.file.get());
  if (!sent || *sent) return sent.has_value();
  // The session reads parcels only when rows are reported, and may not have received a report of this lease
  // yet.
  lease.report();
  sent = protocol::send_parcel(context_.parcels, label, place.file.get(), parcel_deadline);
  return sent.value_or(false);
}

result<unique_fd> job_runner::shared_file(std::uint32_t number) {
  auto came = arguments_.take({protocol::shared_file_slot, 0, 1}, number, nanoseconds(0));
  if (!came) return tl::unexpected(std::move(came.error()));
  if (!*came) return refuse(errc::usage, "the program has published no file {}", number);
  return std::move((*came)->file);
}

}  // namespace penstock::job_worker
