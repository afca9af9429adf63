// Shared by the files of the module _core, which is defined in module.cpp.
#pragma once

#include <penstock/config.hpp>
#include <penstock/json.hpp>

#include <nanobind/nanobind.h>

namespace penstock::python {

namespace nb = nanobind;

/// The classes of pools, in pool_module.cpp.
void bind_pools(nb::module_& m);

}  // namespace penstock::python
