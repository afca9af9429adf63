#include "tools/penstock/jobs/map_work.hpp"

#include "actors/protocol/command_job.hpp"

#include <fmt/core.h>

#include <utility>

namespace penstock::cli {
namespace {

class function_work final : public work {
 public:
  function_work(std::string name, std::string program)
      : name_(std::move(name)), program_(std::move(program)) {}
  [[nodiscard]] std::string function() const override { return name_; }
  [[nodiscard]] std::string program() const override { return program_; }
  [[nodiscard]] line_rule lines() const override { return line_rule::json; }
  [[nodiscard]] std::string as_json() const override {
    if (program_.empty()) return fmt::format(R"({{"function":{}}})", json_string(name_));
    return fmt::format(R"({{"function":{},"program":{}}})", json_string(name_), json_string(program_));
  }
  [[nodiscard]] Argument argument_of(const std::shared_ptr<const std::string>& line) const override {
    return Argument::borrowed(std::as_bytes(std::span(*line)), line);
  }
  [[nodiscard]] job_outcome outcome_of_result(std::span<const std::byte> bytes) const override {
    job_outcome outcome;
    outcome.result = json_of_bytes({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    return outcome;
  }

 private:
  std::string name_;
  std::string program_;
};

class command_work final : public work {
 public:
  command_work(command_template command, std::string as_given, exit_rule exits, command_bounds most)
      : command_(std::move(command)), as_given_(std::move(as_given)), exits_(exits), most_(most) {}
  [[nodiscard]] std::string function() const override { return protocol::command_function; }
  [[nodiscard]] line_rule lines() const override { return line_rule::text; }
  [[nodiscard]] std::string as_json() const override {
    return fmt::format(R"({{"command":{},"fail_on_exit":{}}})", json_string(as_given_),
                       exits_ == exit_rule::must_be_0);
  }
  [[nodiscard]] Argument argument_of(const std::shared_ptr<const std::string>& line) const override {
    return protocol::as_bytes(
        protocol::command_job{command_.words_for(*line), most_.output_bytes_max, most_.memory_bytes_max});
  }
  [[nodiscard]] job_outcome outcome_of_result(std::span<const std::byte> bytes) const override {
    const auto done = protocol::command_outcome_from(bytes);
    if (done) return outcome_of(*done, exits_);
    job_failure why;
    why.text = done.error().message;
    return outcome_of(why);
  }

 private:
  const command_template command_;
  const std::string as_given_;
  const exit_rule exits_;
  const command_bounds most_;
};

job_outcome outcome_of_job(Job job, const work& what) {
  if (const auto why = job.why()) return outcome_of(*why);
  const Result result = job.get();
  job_outcome outcome = what.outcome_of_result(result.bytes());
  outcome.attempts = job.attempts();
  return outcome;
}

}  // namespace

std::unique_ptr<work> call_function(std::string name, std::string program) {
  return std::make_unique<function_work>(std::move(name), std::move(program));
}

std::unique_ptr<work> run_command_line(command_template command, std::string as_given, exit_rule exits,
                                       command_bounds bounds) {
  return std::make_unique<command_work>(std::move(command), std::move(as_given), exits, bounds);
}

result<void> begin_job(Pool& pool, const work& what, const std::shared_ptr<const std::string>& line,
                       const map_run::settle& settled) {
  try {
    job_options options;
    options.program = what.program();
    Job job = pool.submit(what.function(), what.argument_of(line), options);
    job.then([settled, &what](const Job& ended) {
      job_outcome outcome;
      try {
        outcome = outcome_of_job(ended, what);
      } catch (const std::exception& e) {  // no memory for the result
        job_failure why;
        why.status = job_status::too_large;
        why.text = fmt::format("reading its result: {}", e.what());
        outcome = outcome_of(why);
      }
      settled(std::move(outcome));
    });
    return {};
  } catch (const error& e) {
    if (e.code() != errc::out_of_memory) return tl::unexpected(e.as_failure());
    job_failure why;
    why.status = job_status::too_large;
    why.text = e.what();
    settled(outcome_of(why));
    return {};
  }
}

}  // namespace penstock::cli
