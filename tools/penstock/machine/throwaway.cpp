#include "tools/penstock/machine/throwaway.hpp"

#include "runtime/base/units.hpp"
#include "runtime/process/child_end.hpp"
#include "runtime/process/spawn.hpp"

#include <csignal>

extern char** environ;  // NOLINT: no POSIX header declares it

namespace penstock::machine {
namespace {

constexpr std::chrono::milliseconds time_to_die{2000};

}  // namespace

ended_child run_to_the_end(const std::string& program, const std::vector<std::string>& arguments,
                           std::chrono::milliseconds deadline) {
  ended_child end;
  auto output = output_file::create();
  auto errors = output_file::create();
  if (!output || !errors) {
    end.trouble = (output ? errors : output).error().message;
    return end;
  }
  auto child = process::spawn({program,
                               arguments,
                               environment_now(),
                               {{output->fd(), STDOUT_FILENO}, {errors->fd(), STDERR_FILENO}}});
  if (!child) {
    end.trouble = child.error().message;
    return end;
  }
  auto report = process::reap(*child, deadline);
  if (!report) {
    end.ending = child_outcome::how::hung;
    end.trouble = fmt::format("did not return within {}", duration_for_people(deadline));
    process::signal_group(*child, SIGKILL);
    // A child in an uninterruptible driver call survives. That is a finding; init will reap the child.
    if (!process::reap(*child, time_to_die)) end.trouble += " and cannot be killed";
  } else if (report->ending == process::exit_report::how::signalled) {
    end.ending = child_outcome::how::died;
    end.trouble = "was killed by " + process::signal_name(report->code);
  } else {
    end.ending = child_outcome::how::finished;
    end.exit_code = report->code;
  }
  end.output = output->text();
  end.errors = errors->text();
  return end;
}

std::vector<std::string> environment_now() {
  std::vector<std::string> list;
  for (char** entry = environ; *entry != nullptr; ++entry) list.emplace_back(*entry);
  return list;
}

}  // namespace penstock::machine
