#include <penstock/job.hpp>

#include <cstring>
#include <functional>
#include <utility>
#include <vector>

namespace penstock {

std::string_view JobCall::text() const noexcept {
  return {reinterpret_cast<const char*>(argument_.data()), argument_.size()};
}

std::span<std::byte> JobCall::result(std::uint64_t bytes) {
  result_ = {};
  const std::span<std::byte> reserved = room_.reserve(bytes);
  result_ = reserved;
  return reserved;
}

void JobCall::describe(std::string_view work) {
  room_.describe(work);
}

void JobCall::sample(std::uint64_t index, std::string_view name) {
  room_.sample(index, name);
}

JobCall::slow_load JobCall::slow_samples() {
  return room_.slow_samples();
}

void JobCall::shorten_result(std::uint64_t bytes) {
  room_.shorten(bytes);
}

void JobCall::give(std::span<const std::byte> bytes) {
  const std::less<const std::byte*> before;
  const bool in_result = before(bytes.data(), result_.data() + result_.size()) &&
                         before(result_.data(), bytes.data() + bytes.size());
  // reserve() may unmap the memory that result() returned.
  const std::vector<std::byte> copy(in_result ? bytes.begin() : bytes.end(), bytes.end());
  if (in_result) bytes = copy;
  const std::span<std::byte> to = result(bytes.size());
  if (!bytes.empty()) std::memcpy(to.data(), bytes.data(), bytes.size());
}

void JobCall::give(std::string_view text) {
  give(std::as_bytes(std::span(text)));
}

job_exception::job_exception(std::string type, std::string text, std::string traceback)
    : type_(std::move(type)), text_(std::move(text)), traceback_(std::move(traceback)) {}
job_exception::~job_exception() = default;

}  // namespace penstock
