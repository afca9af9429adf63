#include "tools/penstock/jobs/command_outcome.hpp"

#include "runtime/base/text.hpp"
#include "tools/penstock/jobs/output_format.hpp"

#include <fmt/core.h>

namespace penstock::cli {
namespace {

constexpr std::string_view replacement_character = "\xEF\xBF\xBD";  // U+FFFD in UTF-8

void add_output(std::string& to, std::string_view name, const protocol::command_output& output) {
  const std::string text = json_string(output.kept);
  const bool exact = text.find(replacement_character) == std::string::npos || is_utf8(output.kept);
  to.append(R"(,")").append(name).append(R"(":)").append(text);
  if (!exact) to += fmt::format(R"(,"{}_base64":"{}")", name, base64(output.kept));
  if (output.written > output.kept.size()) to += fmt::format(R"(,"{}_bytes":{})", name, output.written);
}

std::string_view last_line_of(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace

job_outcome outcome_of(const protocol::command_outcome& done, exit_rule rule) {
  job_outcome outcome;
  outcome.result = fmt::format(R"({{"exit":{})", done.exit_code);
  outcome.exit_code = done.exit_code;
  outcome.seconds = static_cast<double>(done.took_ns) * 1e-9;
  add_output(outcome.result, "stdout", done.out);
  add_output(outcome.result, "stderr", done.err);
  outcome.result += '}';
  if (done.exit_code == 0) return outcome;
  outcome.again = true;
  if (rule == exit_rule::any_is_ok) return outcome;
  outcome.status = job_status::exception;
  const std::string said = fmt::format("the command exited with {}", done.exit_code);
  outcome.error = fmt::format(R"({{"type":"exit","text":"{}"}})", said);
  const std::string_view last = last_line_of(done.err.kept);
  outcome.text = last.empty() ? said : fmt::format("{}: {}", said, printable(last));
  return outcome;
}

}  // namespace penstock::cli
