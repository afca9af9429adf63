#include "actors/protocol/fit.hpp"

#include <algorithm>

namespace penstock::protocol {
namespace {

// The length of a list or text takes at most 5 bytes (7 bits per byte, message_bytes.hpp).
constexpr std::size_t length_bytes = 5;

/// An upload's numbers (upload, position, epoch, sequence; partition, slot), the length of its list, and its
/// samples.
std::size_t bytes_of(const wire_upload& u) {
  return 4 * sizeof(std::uint64_t) + 2 * sizeof(std::uint32_t) + length_bytes +
         u.samples.size() * sizeof(std::uint64_t);
}

void cut(std::string& text, std::size_t most) {
  constexpr std::string_view mark = "...";
  if (text.size() <= most) return;
  text.resize(most > mark.size() ? most - mark.size() : 0);
  text += mark;
}

}  // namespace

std::vector<upload_slots> split_to_fit(std::vector<wire_upload> uploads) {
  std::vector<upload_slots> messages;
  std::size_t bytes = 0;
  for (wire_upload& u : uploads) {
    const std::size_t more = bytes_of(u);
    if (messages.empty() || bytes + more > frame_bytes_max) {
      messages.emplace_back();
      bytes = length_bytes;
    }
    bytes += more;
    messages.back().uploads.push_back(std::move(u));
  }
  return messages;
}

std::vector<upload_jobs> split_to_fit(std::vector<wire_job_upload> uploads) {
  constexpr std::size_t name_bytes_max = 200;
  constexpr std::size_t at_once =
      (frame_bytes_max - length_bytes) / (sizeof(wire_job_upload) + name_bytes_max);
  std::vector<upload_jobs> messages;
  for (wire_job_upload& u : uploads) {
    if (messages.empty() || messages.back().uploads.size() == at_once) messages.emplace_back();
    messages.back().uploads.push_back(std::move(u));
  }
  return messages;
}

std::vector<slots_copied> split_to_fit(std::vector<std::uint64_t> uploads) {
  constexpr std::size_t at_once = (frame_bytes_max - length_bytes) / sizeof(std::uint64_t);
  std::vector<slots_copied> messages;
  for (std::size_t i = 0; i < uploads.size(); i += at_once) {
    const auto first = uploads.begin() + static_cast<std::ptrdiff_t>(i);
    messages.push_back({{first, first + static_cast<std::ptrdiff_t>(std::min(at_once, uploads.size() - i))}});
  }
  return messages;
}

void cut_to_fit(batch_loaded& report) {
  // Slot, generation, rows; the lists' lengths; the times; the slowest samples. Then, per failure, its row and two texts.
  std::size_t fixed = 3 * sizeof(std::uint32_t) + 3 * length_bytes + 3 * sizeof(std::uint64_t) +
                      report.sample_us.size() * sizeof(std::uint32_t);
  for (const wire_timed_sample& s : report.slowest) fixed += 2 * sizeof(std::uint64_t) + length_bytes + s.name.size();
  constexpr std::size_t per_failure = sizeof(std::uint32_t) + 2 * length_bytes;
  std::size_t bytes = fixed;
  for (const wire_row_failure& f : report.failures) bytes += per_failure + f.name.size() + f.reason.size();
  if (bytes <= frame_bytes_max) return;
  const std::size_t room = frame_bytes_max - fixed - report.failures.size() * per_failure;
  const std::size_t share = room / (2 * report.failures.size());
  for (wire_row_failure& f : report.failures) {
    cut(f.name, share);
    cut(f.reason, share);
  }
}

}  // namespace penstock::protocol
