// The table of doctor's checks: what each one checks, what it expects, and the remedy; and the results for
// given facts. Pure. Used by the doctor command, which also generates docs/doctor.md from it.
#pragma once

#include "tools/penstock/doctor/facts.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace penstock::doctor {

enum class status : std::uint8_t { ok, info, skip, warn, fail };  // in order of severity
enum class layer : std::uint8_t { gpu, machine, loader, data };

/// The result of one check. Empty texts: use the table's.
struct finding {
  status is = status::ok;
  std::string observed;
  std::string expected = {};
  std::string remedy = {};
  std::string why = {};  ///< why the check was skipped
};

struct check {
  std::string_view id;  ///< never changes
  layer belongs_to = layer::machine;
  std::string_view meaning;
  std::string_view expected;
  std::string_view remedy;
  finding (*check)(const facts&) = nullptr;
};

/// One complete row of the report.
struct row {
  const check* of = nullptr;
  status is = status::ok;
  std::string observed;
  std::string expected;
  std::string remedy;  ///< empty if there is nothing to do
  std::string why;     ///< why the check was skipped
};

[[nodiscard]] const std::vector<check>& checks();
/// The checks of --host.
[[nodiscard]] const std::vector<check>& host_checks();
/// One row per check, in the order of the table. If facts::hosts is set, only the checks of --host.
[[nodiscard]] std::vector<row> examine(const facts& found);

[[nodiscard]] std::string_view name_of(status s) noexcept;
[[nodiscard]] std::string_view name_of(layer l) noexcept;
/// The worst status of a layer's rows; skip if none was checked.
[[nodiscard]] status worst_of(const std::vector<row>& rows, layer of) noexcept;
/// One line: which layer is broken and what still works.
[[nodiscard]] std::string summary(const std::vector<row>& rows);

/// The text of docs/doctor.md.
[[nodiscard]] std::string reference_markdown();

// ---- used by single checks, one per row of the table; tests call them too

/// The remedy for an error code of cuInit.
[[nodiscard]] std::string_view remedy_of_init(int code) noexcept;
/// "525.60.13": the oldest driver that runs programs built with this CUDA.
[[nodiscard]] std::string_view minimum_driver(int runtime_version) noexcept;
/// Whether code for these architectures runs on a GPU of this compute capability.
[[nodiscard]] bool has_code_for(const std::vector<std::string>& architectures, int major, int minor);

}  // namespace penstock::doctor
