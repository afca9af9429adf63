#include "actors/protocol/fit.hpp"

#include "actors/protocol/whole_message.hpp"

#include <utility>

namespace penstock::protocol {
namespace {

/// Message must have the list as its only member.
template <class Message, class Item>
std::vector<Message> split(std::vector<Item> items) {
  constexpr std::size_t length_bytes = 5;  // at most this many for the list's length
  std::vector<Message> messages;
  std::size_t bytes = 0;
  for (Item& item : items) {
    const std::size_t more = byte_count(item);
    if (messages.empty() || bytes + more > frame_bytes_max) {
      messages.emplace_back();
      bytes = length_bytes;
    }
    bytes += more;
    messages.back().uploads.push_back(std::move(item));
  }
  return messages;
}

void cut(std::string& text, std::size_t most) {
  constexpr std::string_view mark = "...";
  if (text.size() <= most) return;
  text.resize(most > mark.size() ? most - mark.size() : 0);
  text += mark;
}

}  // namespace

std::vector<upload_slots> split_to_fit(std::vector<wire_upload> uploads) {
  return split<upload_slots>(std::move(uploads));
}

std::vector<upload_jobs> split_to_fit(std::vector<wire_job_upload> uploads) {
  return split<upload_jobs>(std::move(uploads));
}

std::vector<slots_copied> split_to_fit(std::vector<std::uint64_t> uploads) {
  return split<slots_copied>(std::move(uploads));
}

void cut_to_fit(batch_loaded& report) {
  const std::size_t bytes = byte_count(report);
  if (bytes <= frame_bytes_max) return;
  std::size_t texts = 0;
  for (const wire_row_failure& f : report.failures) texts += f.name.size() + f.reason.size();
  const std::size_t share = (frame_bytes_max - (bytes - texts)) / (2 * report.failures.size());
  for (wire_row_failure& f : report.failures) {
    cut(f.name, share);
    cut(f.reason, share);
  }
}

}  // namespace penstock::protocol
