#include <penstock/job.hpp>

#include <cstring>
#include <utility>

namespace penstock {

std::string_view JobCall::text() const noexcept {
  return {reinterpret_cast<const char*>(argument_.data()), argument_.size()};
}

std::span<std::byte> JobCall::result(std::uint64_t bytes) {
  return room_.reserve(bytes);
}

void JobCall::describe(std::string_view work) {
  room_.describe(work);
}

void JobCall::shorten_result(std::uint64_t bytes) {
  room_.shorten(bytes);
}

void JobCall::give(std::span<const std::byte> bytes) {
  const std::span<std::byte> to = room_.reserve(bytes.size());
  if (!bytes.empty()) std::memcpy(to.data(), bytes.data(), bytes.size());
}

void JobCall::give(std::string_view text) {
  give(std::as_bytes(std::span(text)));
}

job_exception::job_exception(std::string type, std::string text, std::string traceback)
    : type_(std::move(type)), text_(std::move(text)), traceback_(std::move(traceback)) {}
job_exception::~job_exception() = default;

}  // namespace penstock
