#include "tools/penstock/machine/throwaway.hpp"

#include "runtime/base/mapping.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/process/child_end.hpp"
#include "runtime/process/spawn.hpp"

#include <unistd.h>

#include <csignal>

extern char** environ;  // NOLINT: no POSIX header declares it

namespace penstock::machine {
namespace {

constexpr std::size_t output_bytes = MiB;
constexpr std::chrono::milliseconds time_to_die{2000};

}  // namespace

result<output_file> output_file::create() {
  constexpr std::string_view what = "a file for the output of a program";
  auto file = create_memory_file("penstock-output", what);
  if (!file) return tl::unexpected(std::move(file.error()));
  if (::ftruncate(file->get(), output_bytes) != 0)
    return refuse_os(errc::system, errno, fmt::format("giving {} its size", what));
  if (auto ok = seal_memory_file(file->get(), seal::size, what); !ok)
    return tl::unexpected(std::move(ok.error()));
  return output_file(std::move(*file));
}

std::string output_file::text() const {
  std::string all(output_bytes, '\0');
  const ssize_t bytes = ::pread(file_.get(), all.data(), all.size(), 0);
  all.resize(bytes < 0 ? 0 : static_cast<std::size_t>(bytes));
  // Bytes from the first zero on were never written.
  all.resize(std::min(all.size(), all.find('\0')));
  return all;
}

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
    // A child in an uninterruptible call of the driver survives. That is a finding; init will reap the child.
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

std::string last_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of("\n\r ");
  if (end == std::string::npos) return {};
  const std::size_t begin = text.find_last_of('\n', end);
  return printable(text.substr(begin == std::string::npos ? 0 : begin + 1,
                               end - (begin == std::string::npos ? std::size_t(-1) : begin)));
}

}  // namespace penstock::machine
