#include "actors/protocol/tensors.hpp"

namespace penstock::protocol {

std::vector<wire_tensor> as_wire(std::span<const tensor_spec> tensors) {
  std::vector<wire_tensor> all;
  all.reserve(tensors.size());
  for (const tensor_spec& t : tensors) {
    all.push_back({t.name, static_cast<std::uint8_t>(t.type), static_cast<std::uint8_t>(t.role), t.shape,
                   static_cast<std::uint8_t>(t.length)});
  }
  return all;
}

result<std::vector<tensor_spec>> from_wire(std::span<const wire_tensor> tensors) {
  std::vector<tensor_spec> all;
  all.reserve(tensors.size());
  for (const wire_tensor& t : tensors) {
    if (t.type > static_cast<std::uint8_t>(dtype::float64) ||
        t.role > static_cast<std::uint8_t>(tensor_role::encoded) ||
        t.length > static_cast<std::uint8_t>(length_rule::batch_maximum)) {
      return refuse(
          errc::protocol,
          "tensor '{}' has element type {}, role {} and length rule {}, at least one of which is unknown",
          t.name, t.type, t.role, t.length);
    }
    all.push_back({t.name, static_cast<dtype>(t.type), t.shape, static_cast<tensor_role>(t.role),
                   static_cast<length_rule>(t.length)});
  }
  return all;
}

}  // namespace penstock::protocol
