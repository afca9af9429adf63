// A frame of a dying process's stack, with the function that contains it according to its
// module's symbol tables. Used by the handler of crash_notes: no allocation, no lock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock::process {

/// Longer names are cut.
inline constexpr std::size_t stack_module_max = 240;
inline constexpr std::size_t stack_function_max = 192;

struct stack_frame {
  std::uint64_t address = 0;
  std::uint64_t offset = 0;                         ///< offset from the module's base
  std::array<char, stack_module_max> module{};      ///< path; empty: unknown
  std::array<char, stack_function_max> function{};  ///< mangled; empty: unknown
};

/// Sets `function` where the module's file has a symbol for the frame. Reads each module's table once. One
/// thread at a time.
void name_functions(std::span<stack_frame> frames) noexcept;

}  // namespace penstock::process
