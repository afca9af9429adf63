// A pool small enough to reason about: the job book, and tables as its workers would write them.
#pragma once

#include "runtime/schedule/job_book.hpp"

#include <catch2/catch_test_macros.hpp>

#include <vector>

namespace penstock::testing {

using namespace std::chrono_literals;
using schedule::job_death;
using schedule::job_id;
using schedule::row_reading;
using row_at = schedule::row_reading::state;

template <class T>
std::vector<T> only(const std::vector<schedule::job_command>& commands) {
  std::vector<T> found;
  for (const schedule::job_command& c : commands) {
    if (const auto* hit = std::get_if<T>(&c)) found.push_back(*hit);
  }
  return found;
}

/// Slots with room for 8 small jobs and their results.
inline constexpr schedule::job_book_settings small_slots{3, 8, 1ms, 1ms, 100ms, 4096, 64, 64};

/// A table whose first rows have ended, followed by one in state `then` and by waiting rows.
inline schedule::lease_reading table_of(const schedule::lease_jobs& order, std::size_t finished,
                                        row_at then = row_at::waiting, nanoseconds busy = 100us) {
  schedule::lease_reading table{order.lease, {}};
  for (std::size_t i = 0; i < order.rows.size(); ++i) {
    const row_at at = i < finished ? row_at::finished : i == finished ? then : row_at::waiting;
    table.rows.push_back({at, false, steady_time(1s), busy});
  }
  return table;
}

/// All rows have finished, and each result is kept in the slot.
inline schedule::lease_reading kept(const schedule::lease_jobs& order) {
  schedule::lease_reading table = table_of(order, order.rows.size());
  for (row_reading& row : table.rows) row.keeps_slot = true;
  return table;
}

inline std::vector<job_id> jobs_of(const schedule::lease_jobs& order) {
  std::vector<job_id> jobs;
  for (const schedule::leased_job& row : order.rows) jobs.push_back(row.job);
  return jobs;
}

/// A book and a clock that moves only when the test advances it.
struct small_pool {
  explicit small_pool(const schedule::job_book_settings& settings = small_slots) : book(settings) {}

  job_id submit(schedule::job_request request = {}) {
    request.job = ++last_job;
    book.submit(request);
    return last_job;
  }
  void submit_many(int count) {
    for (int i = 0; i < count; ++i) submit();
  }
  /// Returns the commands for the test to check, and carries out none of them.
  std::vector<schedule::job_command> go() { return book.advance(now); }
  std::vector<schedule::lease_jobs> leases() { return only<schedule::lease_jobs>(go()); }
  schedule::lease_jobs lease() { return leases().at(0); }

  /// Teaches the book the duration of a function, with a temporary worker.
  void teach(nanoseconds busy, std::uint32_t function = 0) {
    const worker_ref teacher{1000, ++teachers};
    book.worker_joined(teacher, 1);
    submit({.function = function});
    const schedule::lease_jobs order = lease();
    (void)book.reported(table_of(order, 1, row_at::waiting, busy));
    book.worker_died(teacher, {}, "it went", job_death::unrelated, now);
    (void)go();
  }
  std::optional<schedule::job_blame> die(const schedule::lease_jobs& order, std::size_t finished, row_at then,
                                         job_death how = job_death::of_the_job) {
    return book.worker_died(order.lease.holder, {table_of(order, finished, then)}, "SIGSEGV", how, now);
  }
  /// The worker dies of the job that it has just started, and is replaced.
  void crash(const schedule::lease_jobs& order, std::uint32_t slots = 2) {
    die(order, 0, row_at::begun);
    const worker_ref next{order.lease.holder.worker, order.lease.holder.incarnation + 1};
    book.worker_joined(next, slots, order.lease.holder.worker == helper);
  }

  static constexpr std::uint32_t helper = 64;
  schedule::job_book book;
  steady_time now{10s};
  job_id last_job = 0;
  std::uint32_t teachers = 0;
};

inline constexpr worker_ref a1{0, 1};
inline constexpr worker_ref a2{0, 2};
inline constexpr worker_ref b1{1, 1};
inline constexpr worker_ref helper1{small_pool::helper, 1};

/// The only settle_job in the commands.
inline schedule::settle_job settled(const std::vector<schedule::job_command>& said) {
  const auto all = only<schedule::settle_job>(said);
  REQUIRE(all.size() == 1);
  return all[0];
}

/// A bundle of `count` rows leased to worker 0.
inline schedule::lease_jobs bundle_of(small_pool& p, int count, bool idempotent = true) {
  p.teach(1us);
  p.book.worker_joined(a1, 1);
  for (int i = 0; i < count; ++i) p.submit({.idempotent = idempotent});
  schedule::lease_jobs order = p.lease();
  REQUIRE(order.rows.size() == static_cast<std::size_t>(count));
  return order;
}

}  // namespace penstock::testing
