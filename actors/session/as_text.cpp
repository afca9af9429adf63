// Implements the public <penstock/json.hpp>: the machine-readable output formats of the command line.
#include "runtime/config/describe.hpp"
#include "runtime/telemetry/report_json.hpp"

#include <penstock/json.hpp>

#include <nlohmann/json.hpp>

namespace penstock {
namespace {

/// File names may contain any bytes: invalid UTF-8 in them must not make a report throw.
template <class T>
std::string dumped(const T& what) {
  return telemetry::as_json(what).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

std::string to_json(const run_report& report) {
  return dumped(report);
}
std::string to_json(const session_status& status) {
  return dumped(status);
}
std::string to_json(const event& what) {
  return dumped(what);
}

std::string to_toml(const config& settings) {
  return config_file::print_values(settings);
}

}  // namespace penstock
