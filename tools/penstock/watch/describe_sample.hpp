// `penstock describe sample/N`: everything that a session knows about one sample.
#pragma once

#include "tools/penstock/session_verb.hpp"

#include <string>

namespace penstock::cli {

/// `sample`: its number or its name. `all_frames`: of the stacks of workers that died over it. Returns the exit code.
int describe_sample(const session_choice& choice, const std::string& sample, bool all_frames);

}  // namespace penstock::cli
