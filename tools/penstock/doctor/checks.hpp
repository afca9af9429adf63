// The table of doctor's checks: what each looks at, what it expects, what helps; and their results for given
// facts. Pure. Used by the doctor command; docs/doctor.md is generated from it.
#pragma once

#include "tools/penstock/doctor/facts.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace penstock::doctor {

enum class status : std::uint8_t { ok, info, skip, warn, fail };  // in the order of their weight
enum class layer : std::uint8_t { gpu, machine, loader, data };

/// What a judge says. Empty texts: what the table says in general.
struct finding {
  status is = status::ok;
  std::string observed;
  std::string expected = {};
  std::string remedy = {};
  std::string why = {};  ///< of a skip
};

struct check {
  std::string_view id;  ///< stable
  layer belongs_to = layer::machine;
  std::string_view meaning;
  std::string_view expected;
  std::string_view remedy;
  finding (*judge)(const facts&) = nullptr;
};

/// One row of the report: complete.
struct row {
  const check* of = nullptr;
  status is = status::ok;
  std::string observed;
  std::string expected;
  std::string remedy;  ///< empty when there is nothing to do
  std::string why;     ///< of a skip
};

[[nodiscard]] const std::vector<check>& checks();
/// A row for every check, in the order of the table.
[[nodiscard]] std::vector<row> examine(const facts& found);

[[nodiscard]] std::string_view name_of(status s) noexcept;
[[nodiscard]] std::string_view name_of(layer l) noexcept;
/// The worst status of a layer's rows; skip if nothing of it was judged.
[[nodiscard]] status worst_of(const std::vector<row>& rows, layer of) noexcept;
/// One sentence: which layer is broken and what still works.
[[nodiscard]] std::string verdict(const std::vector<row>& rows);

/// docs/doctor.md.
[[nodiscard]] std::string reference_markdown();

// ---- what single judges use, each for a line of the table; tests call them too

/// What to do about a code of cuInit.
[[nodiscard]] std::string_view remedy_of_init(int code) noexcept;
/// "525.60.13": the oldest driver that runs programs built with this CUDA.
[[nodiscard]] std::string_view minimum_driver(int runtime_version) noexcept;
/// Whether code for these architectures runs on a GPU of this compute capability.
[[nodiscard]] bool has_code_for(const std::vector<std::string>& architectures, int major, int minor);

}  // namespace penstock::doctor
