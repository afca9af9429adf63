#include "runtime/dataset/order/mixture_shares.hpp"

#include "runtime/dataset/order/wide_math.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <queue>
#include <utility>

namespace penstock {
namespace {

/// The shortest decimal number that reads back as this value: digits * 10^exponent.
struct decimal {
  std::uint64_t digits = 0;
  int exponent = 0;
};

decimal decimal_of(double value) {
  std::array<char, 40> text{};
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::scientific).ptr;
  decimal made;
  bool fraction = false;
  const char* at = text.data();
  for (; at != end && *at != 'e'; ++at) {
    if (*at == '.') {
      fraction = true;
      continue;
    }
    made.digits = made.digits * 10 + static_cast<std::uint64_t>(*at - '0');
    made.exponent -= fraction ? 1 : 0;
  }
  int exponent = 0;
  if (at != end) std::from_chars(at[1] == '+' ? at + 2 : at + 1, end, exponent);
  made.exponent += exponent;
  return made;
}

void divide_by_common(std::vector<std::uint64_t>& parts) {
  std::uint64_t common = 0;
  for (const std::uint64_t part : parts) common = std::gcd(common, part);
  for (std::uint64_t& part : parts) part /= std::max<std::uint64_t>(common, 1);
}

std::optional<std::vector<std::uint64_t>> exact_parts(std::span<const double> weights) {
  std::vector<decimal> numbers;
  int lowest = std::numeric_limits<int>::max();
  for (const double weight : weights) {
    numbers.push_back(weight == 0 ? decimal{} : decimal_of(weight));
    if (weight != 0) lowest = std::min(lowest, numbers.back().exponent);
  }
  std::vector<uint128> wide;
  uint128 common = 0;
  for (const decimal& number : numbers) {
    uint128 part = number.digits;
    // A number has at most 17 digits, so it still fits into 128 bits with 20 more digits.
    if (part != 0 && number.exponent - lowest > 20) return std::nullopt;
    for (int i = lowest; part != 0 && i < number.exponent; ++i) part *= 10;
    wide.push_back(part);
    for (uint128 other = part; other != 0;) common = std::exchange(other, common % other);
  }
  std::vector<std::uint64_t> parts;
  std::uint64_t sum = 0;
  for (const uint128 part : wide) {
    if (part / common > shares_sum_max) return std::nullopt;
    parts.push_back(static_cast<std::uint64_t>(part / common));
    sum += parts.back();
  }
  if (sum > shares_sum_max) return std::nullopt;
  return parts;
}

/// Rounds by the largest-remainder method.
std::vector<std::uint64_t> rounded_parts(std::span<const double> weights) {
  const double largest = *std::ranges::max_element(weights);
  double sum = 0;
  for (const double weight : weights) sum += weight / largest;
  std::vector<std::uint64_t> parts;
  std::vector<std::pair<double, std::size_t>> remainders;
  std::uint64_t given = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double ideal = weights[i] / largest / sum * shares_sum_max;
    const double whole = std::max(std::floor(ideal), weights[i] > 0 ? 1.0 : 0.0);
    parts.push_back(static_cast<std::uint64_t>(whole));
    given += parts.back();
    if (weights[i] > 0) remainders.emplace_back(whole - ideal, i);
  }
  std::ranges::sort(remainders);
  for (std::size_t i = 0; given < shares_sum_max; ++i, ++given)
    ++parts[remainders[i % remainders.size()].second];
  for (; given > shares_sum_max; --given) --*std::ranges::max_element(parts);
  return parts;
}

}  // namespace

mixture_shares shares_of(std::span<const double> weights) {
  auto parts = exact_parts(weights);
  mixture_shares made;
  made.exact = parts.has_value();
  if (!parts) parts = rounded_parts(weights);
  divide_by_common(*parts);
  for (const std::uint64_t part : *parts) {
    made.parts.push_back(static_cast<std::uint32_t>(part));
    made.sum += made.parts.back();
  }
  return made;
}

/// Earliest deadline first. With p of s parts, turn j of a dataset must be at a position in the window [floor(j s / p),
/// ceil((j + 1) s / p)). If all turns are in their windows, each prefix is within one position of its share (Baruah,
/// Cohen, Plaxton, Varvel: "Proportionate progress", 1996). With one machine this order finds such positions.
mixture_pattern::mixture_pattern(const mixture_shares& shares, std::uint64_t length) : shares_(shares) {
  using entry = std::pair<std::uint64_t, std::uint32_t>;  // a position, and the dataset
  using earliest = std::priority_queue<entry, std::vector<entry>, std::greater<>>;
  const std::uint64_t sum = shares.sum;
  earliest waiting;  // sorted by the start of the next window
  earliest ready;    // sorted by the end of the current window
  std::vector<std::uint64_t> begun(shares.parts.size(), 0);
  std::vector<std::uint32_t> taken(shares.parts.size(), 0);
  for (std::uint32_t d = 0; d < shares.parts.size(); ++d)
    if (shares.parts[d] > 0) waiting.emplace(0, d);
  const std::uint64_t entries = std::min<std::uint64_t>(sum, length);
  datasets_.reserve(entries);
  before_.reserve(entries);
  for (std::uint64_t position = 0; position < entries; ++position) {
    while (!waiting.empty() && waiting.top().first <= position) {
      const std::uint32_t d = waiting.top().second;
      waiting.pop();
      const std::uint64_t part = shares.parts[d];
      const std::uint64_t turn = ++begun[d];
      ready.emplace((turn * sum + part - 1) / part, d);
      if (turn < part) waiting.emplace(turn * sum / part, d);
    }
    const std::uint32_t d = ready.top().second;
    ready.pop();
    datasets_.push_back(static_cast<std::uint16_t>(d));
    before_.push_back(taken[d]++);
  }
}

mixture_pattern::turn mixture_pattern::at(std::uint64_t position) const noexcept {
  const std::uint64_t within = position % shares_.sum;
  const std::uint32_t dataset = datasets_[within];
  return {dataset, position / shares_.sum * shares_.parts[dataset] + before_[within]};
}

std::vector<std::uint64_t> mixture_pattern::counts(std::uint64_t length) const {
  std::vector<std::uint64_t> all;
  for (const std::uint32_t part : shares_.parts) all.push_back(length / shares_.sum * part);
  for (std::uint64_t i = 0; i < length % shares_.sum; ++i) ++all[datasets_[i]];
  return all;
}

}  // namespace penstock
