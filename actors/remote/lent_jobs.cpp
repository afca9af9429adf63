#include "actors/remote/lent_jobs.hpp"

#include "actors/protocol/parcels.hpp"
#include "runtime/arena/job_error.hpp"
#include "runtime/base/units.hpp"

#include <algorithm>

namespace penstock::hosts {
namespace {

using namespace std::chrono_literals;
using arena::row_state;

constexpr nanoseconds lent_parcel_deadline = 2s;

}  // namespace

result<std::unique_ptr<lent_jobs>> lent_jobs::make(std::shared_ptr<const shared_program> program, nanoseconds silence_max,
                                                   std::function<void(std::string_view)> tell, unique_fd& parcels) {
  auto ends = protocol::make_parcel_pair();
  if (!ends) return tl::unexpected(std::move(ends.error()));
  parcels = std::move(ends->first);
  return std::unique_ptr<lent_jobs>(new lent_jobs(std::move(program), std::move(ends->second), silence_max, std::move(tell)));
}

// ---- from the pool ------------------------------------------------------------------------------------------

std::uint64_t lent_jobs::held() const {
  std::uint64_t rows = 0;
  for (const protocol::run_jobs& lease : leases_) rows += lease.rows;
  return rows - std::min<std::uint64_t>(rows, row_);
}

result<bool> lent_jobs::hears(protocol::to_worker& message, int arena) {
  if (const auto* lease = std::get_if<protocol::run_jobs>(&message)) {
    leases_.push_back(*lease);
    return false;
  }
  if (std::holds_alternative<protocol::stop_work>(message)) {
    // Pass stop_work on later: a stopping worker drops jobs that it has not begun, but the row of a job that was
    // sent is already marked as begun.
    stopping_ = true;
    return false;
  }
  if (auto* assigned = std::get_if<protocol::assign_slots>(&message)) {
    auto mapped = arena::slots_view::map(arena, {assigned->slot_bytes, assigned->slots, assigned->partitions}, assigned->partition);
    if (!mapped) return tl::unexpected(std::move(mapped.error()));
    slots_.emplace(std::move(*mapped));
    elsewhere_max_ = assigned->elsewhere_max;
    assigned->slots = 1;
  }
  return true;
}

// ---- to the host --------------------------------------------------------------------------------------------

result<void> lent_jobs::advance(host_stream& to) {
  if (!slots_ || job_) return {};
  if (stopping_) {
    if (std::exchange(told_, true)) return {};
    std::vector<char> frame;
    static_cast<void>(protocol::append_frame(frame, protocol::to_worker(protocol::stop_work{})));
    to.put(to_host(to_place{{frame.begin(), frame.end()}}));
    return {};
  }
  if (leases_.empty()) return {};
  offer_files(to);
  if (unanswered_ > 0) return {};
  if (auto ok = begin_next(); !ok || !job_) return ok;
  const arena::job_reading& order = job_->order;
  to.put(to_host(job_follows{order.job, order.function, order.attempt, order.limit.count(), job_->argument.size()}));
  return to.flush(silence_max_, job_->argument);
}

void lent_jobs::offer_files(host_stream& to) {
  for (const auto& [number, file] : program_->files.all()) {
    if (!offered_.insert(number).second) continue;
    ++unanswered_;
    to.put(to_host(file_offered{number}));
  }
}

result<void> lent_jobs::answered(host_stream& to, const file_answer& news) {
  if (unanswered_ == 0 || !offered_.contains(news.number)) return refuse(errc::protocol, "it answered a question that was not asked");
  if (!news.wanted) {
    --unanswered_;
    return {};
  }
  const auto all = program_->files.all();
  const auto found = all.find(news.number);
  const mapping contents =
      found == all.end() ? mapping() : map_read_only(found->second.file->get(), {0, found->second.bytes});
  // No bytes: the file was withdrawn meanwhile, because no job needs it any more.
  to.put(to_host(file_follows{news.number, contents.bytes().size()}));
  return to.flush(silence_max_, contents.bytes());
}

/// Begins the next row that has not been revoked, if its argument has arrived.
result<void> lent_jobs::begin_next() {
  while (!leases_.empty()) {
    const protocol::run_jobs& lease = leases_.front();
    const auto rows = slot().rows(lease.generation);
    if (!rows) return tl::unexpected(rows.error());
    if (!next_result_) {
      auto first = slot().first_result(*rows);
      if (!first) return tl::unexpected(std::move(first.error()));
      next_result_ = *first;
    }
    auto order = slot().read(row_);
    if (!order) return tl::unexpected(std::move(order.error()));
    in_hand job{*order, slot().bytes(order->argument_offset, order->argument_bytes), {}};
    if (order->state == row_state::waiting && order->argument_elsewhere) {
      auto there = fetch_argument(job);
      if (!there) return tl::unexpected(std::move(there.error()));
      waits_ = !*there;
      if (waits_) return {};
    }
    if (order->state != row_state::waiting || !slot().begin(row_, now())) {
      row_over();  // revoked
      continue;
    }
    job_.emplace(std::move(job));
    return {};
  }
  return {};
}

/// Arguments arrive in the order of leases and rows. Arguments of revoked rows can arrive, too.
result<bool> lent_jobs::fetch_argument(in_hand& job) {
  while (true) {
    auto came = protocol::receive_parcel(parcels_.get());
    if (!came) return tl::unexpected(std::move(came.error()));
    if (!*came) return false;
    const protocol::parcel_label& label = (*came)->label;
    const protocol::run_jobs& lease = leases_.front();
    if (label.slot != lease.slot || label.generation != lease.generation || label.row != row_) continue;
    job.elsewhere = map_read_only((*came)->file.get(), {0, label.bytes});
    if (!job.elsewhere) return refuse_os(errc::out_of_memory, errno, "mapping the argument of a job");
    job.argument = job.elsewhere.bytes();
    return true;
  }
}

void lent_jobs::row_over() {
  const protocol::run_jobs lease = leases_.front();
  ++row_;
  if (row_ == lease.rows) {
    leases_.pop_front();
    next_result_.reset();
    row_ = 0;
  }
  std::vector<char> frame;
  static_cast<void>(protocol::append_frame(
      frame, protocol::from_worker(protocol::jobs_done{lease.slot, lease.generation, row_ == 0 ? lease.rows : row_})));
  tell_({frame.data(), frame.size()});
}

// ---- results ------------------------------------------------------------------------------------------------

result<std::string> lent_jobs::land(host_stream& from, const job_over& news, bool digests) {
  const auto how = static_cast<row_state>(news.how);
  if (!job_ || (how != row_state::finished && how != row_state::failed && how != row_state::too_large))
    return refuse(errc::protocol, "it reported the end of a job that it does not have");
  const auto bytes_max = std::max<std::uint64_t>(elsewhere_max_, slots_->slot(0).size());
  if (news.bytes > bytes_max) return refuse(errc::protocol, "it announced a result of {} bytes, but at most {} are allowed", news.bytes, bytes_max);
  auto room = make_room(news.bytes);
  if (!room) {
    if (auto ok = from.skip_raw(news.bytes, silence_max_, digests); !ok) return tl::unexpected(std::move(ok.error()));
    auto ok = fail(row_state::too_large, room.error().message);
    return ok ? result<std::string>(std::string()) : tl::unexpected(std::move(ok.error()));
  }
  const auto damage = from.read_checked(*room, silence_max_, digests);
  if (!damage) return tl::unexpected(damage.error());
  if (!damage->empty()) {
    room_.reset();
    from.put(to_host(send_again{}));
    return fmt::format("the result of job {} is damaged: {}", job_->order.job, *damage);
  }
  if (auto ok = end(how, news.bytes, nanoseconds(news.busy_ns)); !ok) return tl::unexpected(std::move(ok.error()));
  return std::string();
}

/// Where the result goes: in the slot, after earlier results; in a file if it does not fit.
result<std::span<std::byte>> lent_jobs::make_room(std::uint64_t bytes) {
  room_.reset();
  const std::uint64_t left = slot().room_from(*next_result_);
  if (bytes <= left) return slot().bytes(bytes == 0 ? 0 : *next_result_, bytes);
  if (bytes > elsewhere_max_) {
    return refuse(errc::out_of_memory,
                  "a result of {} bytes is too large: its slot has room for {}, and [jobs] memory allows {} outside the slot",
                  bytes, left, elsewhere_max_);
  }
  auto made = received_file::make(bytes, "a result outside its slot");
  if (!made) return tl::unexpected(std::move(made.error()));
  room_.emplace(std::move(*made));
  return room_->room();
}

result<void> lent_jobs::end(row_state how, std::uint64_t bytes, nanoseconds busy) {
  const protocol::run_jobs& lease = leases_.front();
  const bool elsewhere = room_.has_value();
  if (elsewhere) {
    auto file = std::move(*std::exchange(room_, std::nullopt)).seal();
    if (!file) return tl::unexpected(std::move(file.error()));
    const auto sent =
        protocol::send_parcel(parcels_.get(), {lease.slot, lease.generation, row_, bytes}, file->get(), lent_parcel_deadline);
    if (!sent || !*sent) return refuse(errc::system, "the pool does not accept a large result");
  }
  slot().end(row_, how, elsewhere || bytes == 0 ? 0 : *next_result_, bytes, elsewhere, busy);
  if (!elsewhere && bytes > 0) next_result_ = arena::job_next_result(*next_result_, bytes);
  job_.reset();
  row_over();
  return {};
}

result<void> lent_jobs::fail(row_state how, const std::string& why) {
  const auto text = arena::as_bytes({"penstock::error", why, {}}, slot().room_from(*next_result_));
  std::ranges::copy(text, slot().bytes(text.empty() ? 0 : *next_result_, text.size()).begin());
  return end(how, text.size(), nanoseconds(0));
}

// ---- the flight page ----------------------------------------------------------------------------------------

void lent_jobs::translate(arena::flight_reading& page, std::int64_t mark) const {
  if (!job_) return;
  const protocol::run_jobs& lease = leases_.front();
  if (page.state.at != arena::phase::idle && arena::preparation_in_words(page.state.at).empty())
    page.state = {page.state.at, lease.slot, row_, lease.generation};
  page.limit = job_->order.limit;
  if (mark >= 0 && program_->marks) program_->marks->set(job_->order.job, mark);
}

}  // namespace penstock::hosts
