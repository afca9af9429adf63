#include "tools/penstock/jobs/ordered_lines.hpp"

#include "runtime/base/check.hpp"

#include <algorithm>
#include <utility>

namespace penstock::cli {

void ordered_lines::expect(std::uint64_t index) {
  PENSTOCK_CHECK(waiting_.empty() || waiting_.back().index < index, "{} after {}", index,
                 waiting_.back().index);
  waiting_.push_back({index, std::nullopt, {}});
}

void ordered_lines::arrived(std::uint64_t index, std::string line, std::shared_ptr<const void> held) {
  const auto it = std::ranges::lower_bound(waiting_, index, {}, &place::index);
  PENSTOCK_CHECK(it != waiting_.end() && it->index == index && !it->line, "line {} was not expected", index);
  bytes_ += line.size();
  it->line = std::move(line);
  it->held = std::move(held);
}

std::optional<std::string> ordered_lines::next() {
  if (!ready()) return std::nullopt;
  std::string line = std::move(*waiting_.front().line);
  waiting_.pop_front();
  bytes_ -= line.size();
  return line;
}

}  // namespace penstock::cli
