// What children of a session inherit of its environment: all of it but secrets, which are the session's alone. Workers,
// owners and commands run whatever a dataset, a plugin or a user brings. Used by whoever starts such a child.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace penstock::process {

/// Whether "NAME=value" is a secret: PENSTOCK_GROUP_SECRET.
[[nodiscard]] bool is_secret(std::string_view variable);

/// This process's environment without secrets, as "NAME=value". Call it where no other thread changes the environment.
[[nodiscard]] std::vector<std::string> inherited_environment();

}  // namespace penstock::process
