// exp and log that give the same bits on every machine. libm's results can differ between versions of glibc, and one
// bit can move a crop by a pixel. Used by the boxes.
#pragma once

namespace penstock {

// Built only from IEEE additions, multiplications and divisions in a fixed order. For the aspect ratios of pictures,
// results are within 2 ulp of the true value (tested against libm over 1e-4 .. 1e4).

/// Natural logarithm; x > 0 and finite.
double portable_log(double x) noexcept;
/// e^x; |x| <= 600.
double portable_exp(double x) noexcept;
/// Rounds to the nearest integer, ties to even: Python's round() and nearbyint() in the default mode. |x| < 2^52.
double round_half_even(double x) noexcept;

}  // namespace penstock
