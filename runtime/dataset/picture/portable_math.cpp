#include "runtime/dataset/picture/portable_math.hpp"

#include <cmath>

namespace penstock {
namespace {

// ln 2 in two parts: the first has 32 trailing zero bits, so that n * ln2_high is exact for every exponent n.
constexpr double ln2_high = 0x1.62e42fee00000p-1;
constexpr double ln2_low = 0x1.a39ef35793c76p-33;

}  // namespace

double portable_log(double x) noexcept {
  // frexp and ldexp change only the exponent, so they are exact everywhere.
  int exponent = 0;
  double m = std::frexp(x, &exponent);  // [0.5, 1)
  if (m < 0x1.6a09e667f3bcdp-1) {       // sqrt(1/2): keeps |s| below 0.172
    m *= 2;
    --exponent;
  }
  // log m = 2 atanh(s) = 2 (s + s^3/3 + s^5/5 + ...); 13 terms leave 0.172^27 / 27 < 1e-22.
  const double s = (m - 1) / (m + 1);
  const double z = s * s;
  double series = 0;
  for (int k = 25; k >= 3; k -= 2) series = (series + 1.0 / k) * z;
  const double n = exponent;
  return n * ln2_high + (2 * s + (2 * s * series + n * ln2_low));
}

double portable_exp(double x) noexcept {
  const double n = std::floor(x * 0x1.71547652b82fep0 + 0.5);  // x / ln 2
  const double r = (x - n * ln2_high) - n * ln2_low;           // |r| <= 0.35
  // Taylor series, evaluated with Horner's scheme; 0.35^18 / 18! < 1e-24.
  double sum = 1;
  for (int k = 17; k >= 1; --k) sum = 1 + sum * r / k;
  return std::ldexp(sum, static_cast<int>(n));
}

double round_half_even(double x) noexcept {
  const double below = std::floor(x);
  const double rest = x - below;  // exact
  if (rest < 0.5) return below;
  if (rest > 0.5) return below + 1;
  return below / 2 == std::floor(below / 2) ? below : below + 1;
}

}  // namespace penstock
