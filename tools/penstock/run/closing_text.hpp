// Prints the report of a run on stderr when it has ended. Used by the run command.
#pragma once

#include <penstock/report.hpp>

#include <string>

namespace penstock::cli {

/// Prints epochs, failed samples, deaths and the rate; or the error of a run without a batch. `quarantine_file`: [quarantine] file.
void tell_report(const run_report& report, const std::string& quarantine_file);

}  // namespace penstock::cli
