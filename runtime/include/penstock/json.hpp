// Reports, status, events and configs as text, in the command line's formats: for programs that forward them,
// and for bindings to other languages.
#pragma once

#include <penstock/config.hpp>
#include <penstock/event.hpp>
#include <penstock/export.hpp>
#include <penstock/report.hpp>

#include <string>

namespace penstock {

/// The line of JSON that `penstock run --report` writes, schema penstock.run/1.
[[nodiscard]] PENSTOCK_API std::string to_json(const run_report& report);
/// Schema penstock.status/1: what `penstock status --json` prints.
[[nodiscard]] PENSTOCK_API std::string to_json(const session_status& status);
/// A line of `penstock events --json`.
[[nodiscard]] PENSTOCK_API std::string to_json(const event& what);

/// A config file with every key; loading it gives the same values. (Bytes that are not UTF-8 are shown as
/// \xNN and do not survive.)
[[nodiscard]] PENSTOCK_API std::string to_toml(const config& settings);

}  // namespace penstock
