// Converts tensor descriptions to and from messages. Numbers from another process become enumerators only if
// they are valid.
#pragma once

#include "actors/protocol/messages.hpp"
#include "runtime/base/result.hpp"

#include <penstock/tensor.hpp>

#include <span>
#include <vector>

namespace penstock::protocol {

[[nodiscard]] std::vector<wire_tensor> as_wire(std::span<const tensor_spec> tensors);

/// Refuses (errc::protocol) element types and roles that do not exist.
result<std::vector<tensor_spec>> from_wire(std::span<const wire_tensor> tensors);

}  // namespace penstock::protocol
