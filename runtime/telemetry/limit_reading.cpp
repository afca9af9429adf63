#include "runtime/telemetry/limit_reading.hpp"

#include <algorithm>
#include <numeric>

namespace penstock::telemetry {
namespace {

constexpr double noise = 0.05;              // a smaller share does not count as a limit
// Share of the time that the consumer waited; smaller waits do not matter.
constexpr double waits_that_matter = 0.15;
constexpr double mostly = 0.5;

}  // namespace

std::string_view name_of(limit l) noexcept {
  constexpr std::array<std::string_view, limit_count> names{"storage", "decode",   "order", "wire",
                                                            "convert", "consumer", "start"};
  return names[static_cast<std::size_t>(l)];
}

double limit_reading::waited() const noexcept {
  return std::accumulate(share.begin(), share.end(), 0.0) - of(limit::consumer);
}

bool limit_reading::in_bursts() const noexcept {
  return of(limit::consumer) > mostly && waited() >= waits_that_matter && spare >= waited();
}

std::optional<limit> limit_reading::largest() const noexcept {
  if ((waited() < waits_that_matter && of(limit::consumer) >= noise) || in_bursts()) return limit::consumer;
  auto most = share;
  if (waited() >= waits_that_matter) most[static_cast<std::size_t>(limit::consumer)] = 0;
  const auto found = std::ranges::max_element(most);
  if (*found < noise) return std::nullopt;
  return static_cast<limit>(found - most.begin());
}

std::optional<limit_reading> limit_reading::after_beginning() const {
  const double rest = 1 - beginning;
  if (beginning <= 0 || rest < mostly) return std::nullopt;
  limit_reading r = *this;
  for (std::size_t i = 0; i < limit_count; ++i) r.share[i] = std::clamp((share[i] - share_of_beginning[i]) / rest, 0.0, 1.0);
  for (double* const part : {&r.link, &r.slow_share, &r.no_core, &r.held, &r.spare, &r.owner_frozen, &r.owner_down}) *part = std::min(*part / rest, 1.0);
  if (r.lost) r.lost->share = std::min(r.lost->share / rest, 1.0);
  r.batches_per_second /= rest;
  r.seconds *= rest;
  r.beginning = 0;
  r.share_of_beginning = {};
  return r;
}

}  // namespace penstock::telemetry
