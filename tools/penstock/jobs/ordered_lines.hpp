// Puts lines that arrive in any order into the order of the input. Pure. The caller limits its memory by
// checking size() and bytes() before calling expect().
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

namespace penstock::cli {

class ordered_lines {
 public:
  /// A line will arrive for this index. Indices increase, not necessarily by one.
  void expect(std::uint64_t index);
  /// Call once for each expected index. Keeps `held` until the line is taken.
  void arrived(std::uint64_t index, std::string line, std::shared_ptr<const void> held = {});

  /// The next line, if it has arrived.
  std::optional<std::string> next();

  /// Whether next() would return a line.
  [[nodiscard]] bool ready() const noexcept { return !waiting_.empty() && waiting_.front().line; }
  /// The number of expected lines that have not been taken.
  [[nodiscard]] std::size_t size() const noexcept { return waiting_.size(); }
  /// The bytes of lines that have arrived.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  struct place {
    std::uint64_t index = 0;
    std::optional<std::string> line;
    std::shared_ptr<const void> held{};
  };
  std::deque<place> waiting_;
  std::uint64_t bytes_ = 0;
};

}  // namespace penstock::cli
