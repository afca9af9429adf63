// The public API of jobs: handles, results, arguments.
#include "actors/jobs/job_record.hpp"
#include "runtime/base/thrown.hpp"

#include <penstock/pool.hpp>

namespace penstock {
namespace {

jobs::job_record& record_in(const std::shared_ptr<jobs::job_record>& held) {
  if (!held)
    throw error({errc::usage,
                 "this Job refers to no job: it was default-constructed, or was moved to another object", 0});
  return *held;
}

/// For calls that need the pool. Throws in a forked child, where the pool's threads do not exist.
jobs::job_record& record_at_home(const std::shared_ptr<jobs::job_record>& held) {
  jobs::job_record& record = record_in(held);
  record.home().require("Job");
  return record;
}

std::string sentence_of(std::uint64_t job, const job_failure& why) {
  const std::string cause = why.type.empty() || why.text.empty() ? why.type + why.text : with_cause(why.type, why.text);
  return fmt::format("job {}: {}{}{}", job, name_of(why.status), cause.empty() ? "" : ": ", cause);
}

}  // namespace

const char* name_of(job_status status) noexcept {
  switch (status) {
    case job_status::ok: return "ok";
    case job_status::exception: return "exception";
    case job_status::poisoned: return "poisoned";
    case job_status::timed_out: return "timed_out";
    case job_status::cancelled: return "cancelled";
    case job_status::worker_lost: return "worker_lost";
    case job_status::too_large: return "too_large";
    case job_status::device: return "device";
  }
  return "unknown";
}

job_error::job_error(std::uint64_t job, job_failure why)
    : error({errc::job_failed, sentence_of(job, why), 0}), why_(std::move(why)) {}
job_error::~job_error() = default;

Argument::Argument(std::span<const std::byte> bytes)
    : Argument(std::vector<std::byte>(bytes.begin(), bytes.end())) {}
Argument::Argument(std::string_view text) : Argument(std::string(text)) {}
Argument::Argument(std::string&& text) {
  auto held = std::make_shared<const std::string>(std::move(text));
  bytes_ = std::as_bytes(std::span(*held));
  keep_ = std::move(held);
}
Argument::Argument(std::vector<std::byte>&& bytes) {
  auto held = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  bytes_ = *held;
  keep_ = std::move(held);
}
Argument Argument::borrowed(std::span<const std::byte> bytes, std::shared_ptr<const void> keep) {
  Argument made;
  made.bytes_ = bytes;
  made.keep_ = std::move(keep);
  return made;
}

Result::Result() noexcept = default;
Result::Result(std::shared_ptr<jobs::kept_result> held) noexcept : held_(std::move(held)) {}
Result::Result(Result&&) noexcept = default;
Result& Result::operator=(Result&&) noexcept = default;
Result::~Result() = default;

namespace {

jobs::kept_result& result_in(const std::shared_ptr<jobs::kept_result>& held) {
  if (!held)
    throw error(
        {errc::usage, "this Result is empty: it was default-constructed, or was moved to another object", 0});
  held->require_home();
  return *held;
}

}  // namespace

std::span<const std::byte> Result::bytes() const {
  return result_in(held_).bytes();
}
void Result::count_as(std::uint64_t bytes) {
  result_in(held_).count_as(bytes);
}
bool Result::on_device() const {
  return result_in(held_).on_device();
}
tensor_view Result::tensor() const {
  return result_in(held_).tensor();
}
std::vector<std::byte> Result::read_back() const {
  return result_in(held_).read_back();
}
void Result::release(stream_handle stream) {
  result_in(held_).release(stream);
}
std::string_view Result::text() const {
  const auto all = bytes();
  return {reinterpret_cast<const char*>(all.data()), all.size()};
}

std::uint64_t Job::number() const {
  return record_in(record_).number();
}
Result Job::get() {
  return Result(record_at_home(record_).take());
}
bool Job::wait_for(std::chrono::nanoseconds at_most) const {
  const auto bounded = std::clamp<nanoseconds>(at_most, nanoseconds(0), jobs::longest_wait);
  return record_at_home(record_).wait_until(std::chrono::steady_clock::now() + bounded);
}
std::optional<job_failure> Job::why() const {
  return record_at_home(record_).why();
}
std::uint32_t Job::attempts() const {
  return record_at_home(record_).attempts();
}
bool Job::cancel() {
  return record_in(record_).end(false, false);
}
bool Job::cancel_if_waiting() {
  return record_in(record_).end(true, false);
}
bool Job::kill() {
  return record_in(record_).end(false, true);
}
void Job::then(std::function<void(Job)> callback) {
  record_at_home(record_).then(std::move(callback));
}

}  // namespace penstock
