#include "tools/penstock/jobs/job_outcome.hpp"

#include "runtime/base/text.hpp"
#include "tools/penstock/jobs/input_lines.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace penstock::cli {
namespace {

using json = nlohmann::ordered_json;

std::string on_one_line(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

/// Whether another attempt may end differently. A job that is too large stays too large, the pool has already
/// retried poisoned jobs, and jobs that are not idempotent must not start twice.
bool may_be_tried_again(job_status status) {
  return status == job_status::exception || status == job_status::timed_out || status == job_status::device;
}

}  // namespace

std::optional<job_status> status_named(std::string_view name) {
  const auto it =
      std::ranges::find(all_job_statuses, name, [](job_status s) { return std::string_view(name_of(s)); });
  if (it == all_job_statuses.end()) return std::nullopt;
  return *it;
}

std::string json_string(std::string_view text) {
  return on_one_line(json(text));
}

bool is_utf8(std::string_view text) {
  try {
    static_cast<void>(json(text).dump(-1, ' ', false, json::error_handler_t::strict));
  } catch (const json::type_error&) {
    return false;
  }
  return true;
}

std::string json_of_bytes(std::string_view bytes) {
  if (bytes.starts_with(byte_order_mark) || !json::accept(bytes)) return json_string(bytes);
  std::string value(bytes);
  // In valid JSON line feeds occur only between tokens: in strings they are escaped.
  std::ranges::replace_if(
      value, [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return value;
}

job_outcome outcome_of(const job_failure& why) {
  job_outcome outcome;
  outcome.status = why.status;
  outcome.attempts = why.attempts;
  if (why.ran) outcome.seconds = std::chrono::duration<double>(*why.ran).count();
  json error = json::object();
  if (!why.type.empty()) error["type"] = why.type;
  error["text"] = why.text;
  if (!why.traceback.empty()) error["traceback"] = why.traceback;
  if (!why.causes.empty()) error["causes"] = why.causes;
  outcome.error = on_one_line(error);
  outcome.text = printable(why.type.empty() ? why.text : why.type + ": " + why.text);
  if (!why.causes.empty()) outcome.signal = signal_in(why.causes.back());
  outcome.ends_run = why.attempts == 0 && why.type == "unknown_function";
  outcome.again = may_be_tried_again(why.status) && !outcome.ends_run;
  return outcome;
}

job_verdict verdict_on(const job_outcome& outcome) noexcept {
  if (has_failed(outcome.status)) return job_verdict::failed;
  return exited_with_another_code_than_0(outcome) ? job_verdict::nonzero_exit : job_verdict::ok;
}

std::string signal_in(std::string_view cause) {
  const std::size_t begin = cause.find("SIG");
  if (begin == std::string_view::npos) return {};
  const std::size_t end = cause.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+", begin);
  return std::string(cause.substr(begin, end == std::string_view::npos ? end : end - begin));
}

std::string output_line(std::uint64_t index, const job_outcome& outcome, std::string_view input) {
  std::string line = fmt::format(R"({{"index":{},"status":"{}","attempts":{},"result":)", index,
                                 name_of(outcome.status), outcome.attempts);
  line.reserve(line.size() + outcome.result.size() + outcome.error.size() + input.size() + 32);
  line.append(outcome.result).append(R"(,"error":)").append(outcome.error);
  line.append(R"(,"input":)").append(input).append("}\n");
  return line;
}

}  // namespace penstock::cli
