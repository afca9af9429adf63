// A device program as a sink: opens the shared library and orders its work between the batch and its release.
#pragma once

#include "actors/gpu_owner/batch_sink.hpp"

namespace penstock::gpu_owner {

result<std::unique_ptr<batch_sink>> open_plugin(const std::string& path,
                                                std::shared_ptr<device::device> device);

}  // namespace penstock::gpu_owner
