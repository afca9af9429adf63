#include "runtime/supervision/restart_policy.hpp"

#include <algorithm>
#include <cmath>

namespace penstock::supervision {

restart_settings settings_of(const restart_config& from) {
  return {from.type,           from.intensity.max, from.intensity.within,   from.backoff.base,
          from.backoff.factor, from.backoff.max,   from.backoff.reset_after};
}

restart_decision restart_policy::child_died(steady_time now, const death& d) {
  using act = restart_decision::what;
  const bool lived_long = ready_since_ != never && now - ready_since_ >= settings_.backoff_reset_after;
  ready_since_ = never;
  if (lived_long || d.ending == death::how::operated) reset();
  // The child was ended so that it can be replaced.
  if (d.ending == death::how::operated) return {act::restart, now};
  if (settings_.type == restart_type::temporary) return {act::stop, now};
  if (d.ending == death::how::no_restart) return {act::fail, now};
  if (settings_.type == restart_type::transient && d.ending == death::how::normal) return {act::stop, now};
  if (!d.backs_off()) {
    // Keep the history of counted deaths: old deaths expire by themselves.
    in_a_row_ = 0;
    return {act::restart, now};
  }
  return d.counted() ? count_and_back_off(now) : restart_decision{act::restart, now + next_wait()};
}

restart_decision restart_policy::start_failed(steady_time now) {
  return count_and_back_off(now);
}

restart_decision restart_policy::count_and_back_off(steady_time now) {
  counted_.push_back(now);
  while (now - counted_.front() > settings_.intensity_within) counted_.pop_front();
  if (counted_.size() > settings_.intensity_max) return {restart_decision::what::fail, now};
  return {restart_decision::what::restart, now + next_wait()};
}

void restart_policy::reset() noexcept {
  counted_.clear();
  in_a_row_ = 0;
}

nanoseconds restart_policy::next_wait() {
  const std::uint32_t k = in_a_row_++;
  if (k == 0) return nanoseconds(0);  // the first restart does not wait
  const double grown =
      static_cast<double>(settings_.backoff_base.count()) * std::pow(settings_.backoff_factor, k - 1);
  const double longest = std::min(grown, static_cast<double>(settings_.backoff_max.count()));
  // Uniform in [d/2, d]. Uses the raw bits, because the standard library's distributions differ between vendors.
  const double share = 0.5 + 0.5 * (static_cast<double>(random_() >> 11U) * 0x1.0p-53);
  return nanoseconds(static_cast<std::int64_t>(longest * share));
}

}  // namespace penstock::supervision
