// Inspects a tar dataset: its shards, and samples that cannot be loaded. Used by inspection.cpp.
#pragma once

#include "tools/penstock/dataset/inspection.hpp"

namespace penstock::inspected {

/// Fills in shards, counts and tensors, and loads up to `samples_looked_at` evenly spread samples; those that fail are
/// suspicious.
result<void> add_tar(inspection& to, const config& settings, unsigned threads, const progress& told);

}  // namespace penstock::inspected
