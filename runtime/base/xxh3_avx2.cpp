// Compiled with -mavx2 on x86-64.
#include "runtime/base/xxh3_functions.hpp"

namespace penstock {

const xxh3_functions xxh3_with_avx2 = xxh3_compiled_here;

}  // namespace penstock
