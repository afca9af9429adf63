#include "tools/penstock/jobs/map_work.hpp"

#include "actors/protocol/command_job.hpp"

#include <fmt/core.h>

#include <chrono>
#include <utility>

namespace penstock::cli {
namespace {

class function_work final : public work {
 public:
  function_work(std::string name, std::string program, const result_files* files)
      : name_(std::move(name)), program_(std::move(program)), files_(files) {}
  [[nodiscard]] std::string function() const override { return name_; }
  [[nodiscard]] std::string program() const override { return program_; }
  [[nodiscard]] line_rule lines() const override { return line_rule::json; }
  [[nodiscard]] std::string as_json() const override {
    if (program_.empty()) return fmt::format(R"({{"function":{}}})", json_string(name_));
    return fmt::format(R"({{"function":{},"program":{}}})", json_string(name_), json_string(program_));
  }
  [[nodiscard]] std::vector<std::string> words_for(const std::string& line) const override {
    return {name_, line};
  }
  [[nodiscard]] Argument argument_of(const map_line& line) const override {
    return Argument::borrowed(std::as_bytes(std::span(*line.text)), line.text);
  }
  [[nodiscard]] job_outcome outcome_of_result(std::uint64_t index,
                                              std::span<const std::byte> bytes) const override {
    job_outcome outcome;
    if (files_ != nullptr) {
      if (auto ok = files_->write(index, bytes); !ok) outcome.trouble = std::move(ok.error());
    }
    outcome.result = json_of_bytes({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    return outcome;
  }

 private:
  std::string name_;
  std::string program_;
  const result_files* files_;
};

class command_work final : public work {
 public:
  command_work(command_template command, std::string as_given, exit_rule exits, command_settings settings)
      : command_(std::move(command)),
        as_given_(std::move(as_given)),
        exits_(exits),
        settings_(std::move(settings)) {}
  [[nodiscard]] std::string function() const override { return protocol::command_function; }
  [[nodiscard]] line_rule lines() const override { return line_rule::text; }
  [[nodiscard]] std::string as_json() const override {
    return fmt::format(R"({{"command":{},"fail_on_exit":{}}})", json_string(as_given_),
                       exits_ == exit_rule::must_be_0);
  }
  [[nodiscard]] std::vector<std::string> words_for(const std::string& line) const override {
    return command_.words_for(line);
  }
  [[nodiscard]] Argument argument_of(const map_line& line) const override {
    const result_files* const files = settings_.files;
    return protocol::as_bytes(
        protocol::command_job{.arguments = command_.words_for(*line.text),
                              .output_bytes_max = settings_.output_bytes_max,
                              .memory_bytes_max = settings_.memory_bytes_max,
                              .environment = settings_.environment,
                              .output_files = files != nullptr ? files->path_of(line.index) : std::string()});
  }
  [[nodiscard]] job_outcome outcome_of_result(std::uint64_t /*index*/,
                                              std::span<const std::byte> bytes) const override {
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
  const command_settings settings_;
};

job_outcome outcome_of_job(Job job, const work& what, std::uint64_t index) {
  if (const auto why = job.why()) {
    job_outcome outcome = outcome_of(*why);
    outcome.from_pool = true;
    return outcome;
  }
  auto result = std::make_shared<Result>(job.get());
  job_outcome outcome = what.outcome_of_result(index, result->bytes());
  result->count_as(outcome.result.size() + outcome.error.size());
  outcome.from_pool = true;
  outcome.held = std::move(result);
  outcome.attempts = job.attempts();
  return outcome;
}

/// The start time of a job that has just ended after running this long.
std::chrono::system_clock::time_point start_of(double seconds) {
  const auto ran = std::chrono::duration<double>(seconds);
  return std::chrono::system_clock::now() -
         std::chrono::duration_cast<std::chrono::system_clock::duration>(ran);
}

}  // namespace

std::unique_ptr<work> call_function(std::string name, std::string program, const result_files* files) {
  return std::make_unique<function_work>(std::move(name), std::move(program), files);
}

std::unique_ptr<work> run_command_line(command_template command, std::string as_given, exit_rule exits,
                                       command_settings settings) {
  return std::make_unique<command_work>(std::move(command), std::move(as_given), exits, std::move(settings));
}

void job_starter::add(const Job& job) {
  {
    const std::lock_guard hold(mutex_);
    if (!cancelling_) {
      unfinished_.emplace(job.number(), job);
      return;
    }
  }
  Job(job).cancel_if_waiting();
}

void job_starter::cancel_waiting() {
  std::map<std::uint64_t, Job> all;
  {
    const std::lock_guard hold(mutex_);
    cancelling_ = true;
    all = std::exchange(unfinished_, {});
  }
  for (auto& [number, job] : all) job.cancel_if_waiting();
}

result<void> job_starter::start(const map_line& line, const map_run::settle& settled) {
  try {
    job_options options;
    options.program = what_.program();
    options.urgent = line.again;
    options.again = line.again;
    options.known_as = line.index + 1;
    Job job = pool_.submit(what_.function(), what_.argument_of(line), options);
    add(job);
    job.then([this, settled, index = line.index](const Job& ended) {
      {
        const std::lock_guard hold(mutex_);
        unfinished_.erase(ended.number());
      }
      job_outcome outcome;
      try {
        outcome = outcome_of_job(ended, what_, index);
      } catch (const std::exception& e) {  // out of memory for the result
        job_failure why;
        why.status = job_status::too_large;
        why.text = fmt::format("reading its result: {}", e.what());
        outcome = outcome_of(why);
        outcome.from_pool = true;
      }
      if (outcome.seconds) outcome.started = start_of(*outcome.seconds);
      settled(std::move(outcome));
    });
    return {};
  } catch (const error& e) {
    if (e.code() != errc::out_of_memory) return tl::unexpected(e.as_failure());
    job_failure why;
    why.status = job_status::too_large;
    why.text = e.what();
    job_outcome outcome = outcome_of(why);
    outcome.from_pool = line.again;
    settled(std::move(outcome));
    return {};
  }
}

}  // namespace penstock::cli
