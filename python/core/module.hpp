// Shared by the files of the module _core, which is defined in module.cpp.
#pragma once

#include <penstock/config.hpp>
#include <penstock/json.hpp>

#include <nanobind/nanobind.h>

#include <memory>

namespace penstock::python {

namespace nb = nanobind;

class lease;
struct leased_tensor;
/// A DLPack capsule of memory that `held` keeps alive; without `held` the caller keeps it alive.
nb::object dlpack_capsule(std::shared_ptr<lease> held, const leased_tensor& tensor, int cuda_device,
                          bool versioned);

/// The classes of pools, in pool_module.cpp.
void bind_pools(nb::module_& m);

}  // namespace penstock::python
