// A sealed memory file whose contents arrive over a connection. Used by both ends of a connection, for arguments, results and files
// that do not fit a slot.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/mapping.hpp"
#include "runtime/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace penstock::hosts {

class received_file {
 public:
  /// Allocates the whole file. `bytes` > 0; `what` names it in the refusal (errc::out_of_memory).
  static result<received_file> make(std::uint64_t bytes, std::string_view what);

  [[nodiscard]] std::span<std::byte> room() const noexcept { return memory_.bytes(); }
  /// Call when its contents are complete. Refuses (errc::system).
  result<unique_fd> seal() &&;

 private:
  received_file(unique_fd file, mapping memory) : file_(std::move(file)), memory_(std::move(memory)) {}

  unique_fd file_;
  mapping memory_;
};

}  // namespace penstock::hosts
