// Messages about collective operations of a group's programs - barriers, and small all-gathers of bytes -
// between members and coordinator. They are attachments to the two messages in group_messages.hpp. Like those
// messages, they always contain the whole state. Used by collective_book (the coordinator's side),
// collective_member (a rank's), program_group.
//
// Each rank counts its operations itself, from 1. Each report states which operation the rank is in, and its
// bytes; the order brings a waiting rank the result. A rank also repeats its previous operation: another rank
// may still wait for that operation when a new coordinator starts. No rank is more than one operation behind,
// because none enters an operation before all have entered the previous one.
#pragma once

#include "runtime/base/result.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::group {

inline constexpr std::size_t collective_bytes_of_rank_max = 64 * 1024;
inline constexpr std::size_t collective_bytes_of_result_max = 16 * 1024 * 1024;

/// How many bytes each rank may contribute in a group of this size.
[[nodiscard]] constexpr std::size_t collective_bytes_max(std::uint32_t world_size) noexcept {
  return std::min(collective_bytes_of_rank_max,
                  collective_bytes_of_result_max / std::max<std::size_t>(world_size, 1));
}

enum class collective_kind : std::uint8_t { barrier, all_gather };
[[nodiscard]] constexpr const char* name_of(collective_kind kind) noexcept {
  return kind == collective_kind::barrier ? "a barrier" : "an all_gather";
}

/// A rank has entered an operation.
struct collective_word {
  std::uint64_t number = 0;
  collective_kind what = collective_kind::barrier;
  std::string value{};
  bool operator==(const collective_word&) const = default;
};

struct collective_report {
  std::uint64_t done = 0;                ///< the rank has the results of all operations up to this one
  std::uint64_t digest = 0;              ///< digest of the last of these results; 0: this process has none
  std::vector<collective_word> words{};  ///< the latest two operations that it has entered, ascending
  bool operator==(const collective_report&) const = default;
};
inline constexpr std::size_t collective_words_max = 2;

struct collective_result {
  std::uint64_t number = 0;
  collective_kind what = collective_kind::barrier;
  std::vector<std::string> values{};  ///< by rank; all empty for a barrier
  bool operator==(const collective_result&) const = default;
};
[[nodiscard]] std::uint64_t digest_of(const collective_result& result) noexcept;
/// Shared, because every rank gets the same result.
using shared_collective_result = std::shared_ptr<const collective_result>;

struct collective_answer {
  shared_collective_result result{};         ///< null: not complete, or the rank waits for none
  std::vector<std::uint32_t> not_entered{};  ///< ranks that the receiver waits for
};

// Encodes as bytes. Incoming bytes are checked like the messages themselves (group_wire.hpp).
[[nodiscard]] std::string encode(const collective_report& report);
[[nodiscard]] std::string encode(const collective_answer& answer);
result<collective_report> decode_collective_report(std::string_view bytes, std::uint32_t world_size);
result<collective_answer> decode_collective_answer(std::string_view bytes, std::uint32_t world_size);
/// The longest encoding of a report or an answer.
[[nodiscard]] constexpr std::size_t collective_attachment_max(std::uint32_t world_size) noexcept {
  constexpr std::size_t numbers = 64;
  const std::size_t value = collective_bytes_max(world_size);
  return numbers + std::max(collective_words_max * value, world_size * (value + 8));
}

}  // namespace penstock::group
