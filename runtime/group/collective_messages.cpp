#include "runtime/group/collective_messages.hpp"

#include "runtime/group/wire_archive.hpp"

#include <utility>

namespace penstock::group {
namespace {

template <class Archive>
void fields(Archive& io, in_archive<Archive, collective_report>& report, std::size_t value_max) {
  io(report.done);
  io(report.digest);
  io.list(report.words, collective_words_max, 13, "operations", [&](auto& word) {
    io(word.number);
    io(word.what, collective_kind::all_gather);
    io.exact(word.value, value_max, "a value");
  });
}

template <class Archive>
void fields(Archive& io, in_archive<Archive, collective_result>& made, std::size_t value_max) {
  io(made.number);
  io(made.what, collective_kind::all_gather);
  io.list(made.values, io.ranks(), 4, "values", [&](auto& value) { io.exact(value, value_max, "a value"); });
}

}  // namespace

/// FNV-1a over lengths and bytes. Never 0.
std::uint64_t digest_of(const collective_result& result) noexcept {
  std::uint64_t sum = 0xcbf29ce484222325;
  const auto add = [&sum](std::uint64_t byte) { sum = (sum ^ byte) * 0x100000001b3; };
  for (const std::string& value : result.values) {
    add(value.size());
    for (const char c : value) add(static_cast<unsigned char>(c));
  }
  return sum | 1U;
}

std::string encode(const collective_report& report) {
  wire_writer to;
  fields(to, report, collective_bytes_of_rank_max);
  return to.take();
}

std::string encode(const collective_answer& answer) {
  wire_writer to;
  ranks_of(to, answer.not_entered);
  to(answer.result != nullptr);
  if (answer.result) fields(to, *answer.result, collective_bytes_of_rank_max);
  return to.take();
}

result<collective_report> decode_collective_report(std::string_view bytes, std::uint32_t world_size) {
  wire_reader from(bytes, world_size);
  collective_report report;
  fields(from, report, collective_bytes_max(world_size));
  if (!from.done("a report")) return refuse(errc::protocol, "its report on collective operations is corrupt");
  return report;
}

result<collective_answer> decode_collective_answer(std::string_view bytes, std::uint32_t world_size) {
  wire_reader from(bytes, world_size);
  collective_answer answer;
  ranks_of(from, answer.not_entered);
  for (const std::uint32_t rank : answer.not_entered) {
    if (rank >= world_size) from.fail("a rank");
  }
  bool there = false;
  from(there);
  if (there && from.good()) {
    auto made = std::make_shared<collective_result>();
    fields(from, *made, collective_bytes_max(world_size));
    if (made->values.size() != world_size)
      return refuse(errc::protocol, "{} values for {} ranks", made->values.size(), world_size);
    answer.result = std::move(made);
  }
  if (!from.done("an answer"))
    return refuse(errc::protocol, "the result of a collective operation is corrupt");
  return answer;
}

}  // namespace penstock::group
