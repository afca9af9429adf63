// The yardstick's measurements on a GPU: see yardstick.hpp.
#pragma once

#include "runtime/device/make_choice.hpp"
#include "runtime/device/yardstick.hpp"

namespace penstock::device {

result<bare_copies> measure_cuda_copies(const cuda_choice& choice, const slots_in_memory& memory,
                                        std::uint32_t buffers, nanoseconds time);
result<conversion_rates> measure_cuda_conversion(const cuda_choice& choice, const transfer_plan& plan,
                                                 nanoseconds time);

}  // namespace penstock::device
