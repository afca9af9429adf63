#include "tools/penstock/jobs/map_options.hpp"

#include "runtime/base/number.hpp"
#include "runtime/base/text.hpp"
#include "tools/penstock/number_option.hpp"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <string_view>
#include <utility>

namespace penstock::cli {
namespace {

constexpr std::uint32_t retries_max = 1'000'000;

}  // namespace

result<halt_rule> halt_rule_from(const std::string& text) {
  if (text == "never") return halt_rule{};
  const std::string_view all = text;
  const std::size_t comma = all.find(',');
  const std::string_view when = all.substr(0, comma);
  std::string_view count = comma == std::string_view::npos ? std::string_view() : all.substr(comma + 1);
  constexpr std::string_view key = "fail=";
  halt_rule rule;
  rule.cancels_running = when == "now";
  if ((when == "now" || when == "soon") && count.starts_with(key)) {
    count.remove_prefix(key.size());
    rule.failures_max = whole_number<decltype(rule.failures_max)>(count).value_or(0);
    if (rule.failures_max > 0) return rule;
  }
  return refuse(errc::usage, "--halt '{}': must be never, soon,fail=N or now,fail=N, with N at least 1",
                printable(text));
}

result<void> check_usage(const map_options& o) {
  if (o.function.empty() == o.command.empty())
    return refuse(
        errc::usage,
        "give either --function NAME, with FILE naming its worker program, or --command 'PROGRAM {{}}'");
  if (!o.function.empty() && o.source.file.empty())
    return refuse(errc::usage,
                  "--function needs FILE: its [loader] command is the worker program with the function");
  if (o.command.empty() && !o.memory.empty())
    return refuse(errc::usage, "--memory needs --command; for functions set [loader.limits] memory");
  if (o.function.empty() && !o.program.empty())
    return refuse(errc::usage,
                  "--program needs --function: the device program receives the function's result");
  if (o.command.empty() && o.fail_on_exit) return refuse(errc::usage, "--fail-on-exit needs --command");
  if (auto rule = halt_rule_from(o.halt); !rule) return tl::unexpected(std::move(rule.error()));
  if (o.retry_failed && o.journal.empty())
    return refuse(errc::usage, "--retry-failed needs --journal, which records the failed jobs");
  return {};
}

void add_map_options(CLI::App& verb, const std::shared_ptr<map_options>& o) {
  verb.add_option("FILE", o->source.file, "a config file with [jobs] and [loader]");
  verb.add_option("--function", o->function, "which function of FILE's worker program to call")
      ->type_name("NAME");
  verb.add_option("--program", o->program,
                  "the device program in FILE's [jobs.programs] that makes each job's result from the "
                  "function's result")
      ->type_name("NAME");
  verb.add_option("--command", o->command, "the program to run; {} is replaced by the line")
      ->type_name("COMMAND");
  verb.add_option("--input", o->input, "one job for each line; -: stdin")
      ->type_name("IN")
      ->capture_default_str();
  verb.add_flag("-0,--null", o->null,
                "lines of the input end with a NUL byte (find -print0), not with a line feed");
  verb.add_option("--output", o->output, "one line for each job; -: stdout")
      ->type_name("OUT")
      ->capture_default_str();
  verb.add_flag("--raw", o->raw,
                "write the commands' stdout (or the function's results) unchanged, instead of JSON; their "
                "stderr goes to stderr");
  verb.add_flag("--tag", o->tag, "like --raw, but each line begins with the input line and a tab");
  verb.add_option(
          "--results", o->results,
          "write all output of job N to the files DIR/N.stdout and DIR/N.stderr, a function's result to "
          "DIR/N.result")
      ->type_name("DIR");
  verb.add_option("--workers", o->source.workers, "worker processes, or \"auto\"")->type_name("N");
  verb.add_option("--timeout", o->source.timeout, "time limit of one attempt of a job")->type_name("TIME");
  takes_whole_number(
      verb.add_option("--retries", o->retries,
                      "repeat a job up to N times if it throws, times out or exits with a code other than 0"),
      {0, retries_max})
      ->capture_default_str();
  verb.add_option(
          "--halt", o->halt,
          "end the run when N jobs have failed: never, soon,fail=N (running jobs finish) or now,fail=N (they "
          "are cancelled). Exit codes count with --fail-on-exit")
      ->type_name("WHEN")
      ->capture_default_str();
  verb.add_option("--journal", o->journal,
                  "record finished jobs in this file, and skip those that it contains")
      ->type_name("JOURNAL");
  verb.add_option("--job-log", o->job_log,
                  "append a line for each job when it ends: start, end, exit code, signal, input line")
      ->type_name("LOG");
  verb.add_option(
          "--memory", o->memory,
          "kill a command that uses more private memory than this, with all processes that it started")
      ->type_name("SIZE");
  verb.add_flag("--retry-failed", o->retry_failed, "repeat jobs of the journal that are not ok");
  verb.add_flag("--fail-on-exit", o->fail_on_exit, "count a command that exits with a code other than 0 as failed");
  verb.add_option("--on-bad-line", o->on_bad_line,
                  "what to do about lines that are not JSON (with --command: lines that contain a NUL byte): "
                  "end the run, or report and skip them")
      ->check(CLI::IsMember({"fail", "skip"}))
      ->capture_default_str();
  verb.add_option("--keep-output", o->keep_output,
                  "how much to keep of each command's stdout, and of its stderr")
      ->type_name("SIZE")
      ->capture_default_str();
  add_set_option(verb, o->source);
  verb.add_flag("--dry-run", o->dry_run, "print what would be run for each line, and run nothing");
  verb.add_flag("--json", o->json,
                "a summary as one JSON object on stdout (on stderr if results go to stdout)");
  verb.add_flag("--quiet", o->quiet, "no progress, no closing line, no warnings");
}

}  // namespace penstock::cli
