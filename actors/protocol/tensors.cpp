#include "actors/protocol/tensors.hpp"

namespace penstock::protocol {

std::vector<wire_tensor> as_wire(std::span<const tensor_spec> tensors) {
  std::vector<wire_tensor> all;
  all.reserve(tensors.size());
  for (const tensor_spec& t : tensors) {
    all.push_back({t.name, static_cast<std::uint8_t>(t.type), static_cast<std::uint8_t>(t.role), t.shape});
  }
  return all;
}

result<std::vector<tensor_spec>> from_wire(std::span<const wire_tensor> tensors) {
  std::vector<tensor_spec> all;
  all.reserve(tensors.size());
  for (const wire_tensor& t : tensors) {
    if (t.type > static_cast<std::uint8_t>(dtype::float64) ||
        t.role > static_cast<std::uint8_t>(tensor_role::record)) {
      return refuse(errc::protocol, "tensor '{}' has element type {} and role {}, which do not exist", t.name,
                    t.type, t.role);
    }
    all.push_back({t.name, static_cast<dtype>(t.type), t.shape, static_cast<tensor_role>(t.role)});
  }
  return all;
}

}  // namespace penstock::protocol
