// The environment that a session's children inherit: everything except secrets, which only the session may
// have. Workers, owners and commands run code from datasets, plugins and users. Used wherever such a child is
// started.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace penstock::process {

/// Whether "NAME=value" is a secret: PENSTOCK_GROUP_SECRET.
[[nodiscard]] bool is_secret(std::string_view variable);

/// This process's environment without secrets, as "NAME=value". Call it where no other thread changes the
/// environment.
[[nodiscard]] std::vector<std::string> inherited_environment();

}  // namespace penstock::process
