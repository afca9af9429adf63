// A device program as a sink: loads the shared library and runs the program's work after a batch is ready and
// before the batch is released.
#pragma once

#include "actors/gpu_owner/batch_sink.hpp"

namespace penstock::gpu_owner {

result<std::unique_ptr<batch_sink>> open_plugin(const std::string& path,
                                                std::shared_ptr<device::device> device,
                                                std::shared_ptr<communicator_side> communicator);

}  // namespace penstock::gpu_owner
