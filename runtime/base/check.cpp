#include "runtime/base/check.hpp"

#include <cstdio>
#include <cstdlib>

namespace penstock {

void contract_violated(const char* file, int line, const char* condition, std::string_view values) {
  std::fprintf(stderr, "penstock: contract violated at %s:%d: %s (%.*s)\n", file, line, condition,
               static_cast<int>(values.size()), values.data());
  std::abort();
}

}  // namespace penstock
