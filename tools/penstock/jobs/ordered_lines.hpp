// Restores the order of the input for lines that arrive in any order. Pure. The caller limits its memory by
// checking size() and bytes() before it calls expect().
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
  /// Once for each expected index. `held` is kept until the line is taken.
  void arrived(std::uint64_t index, std::string line, std::shared_ptr<const void> held = {});

  /// The next line, if it has arrived.
  std::optional<std::string> next();

  /// Whether next() would return one.
  [[nodiscard]] bool ready() const noexcept { return !waiting_.empty() && waiting_.front().line; }
  /// Expected lines that were not taken yet.
  [[nodiscard]] std::size_t size() const noexcept { return waiting_.size(); }
  /// Of the lines that have arrived.
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
