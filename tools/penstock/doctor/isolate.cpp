#include "runtime/base/layout.hpp"
#include "runtime/base/text.hpp"
#include "runtime/dataset/factory.hpp"
#include "tools/penstock/doctor/gather.hpp"
#include "tools/penstock/machine/throwaway.hpp"

#include <penstock/random.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

namespace penstock::doctor {

using namespace machine;

namespace {

constexpr std::chrono::milliseconds step_deadline{120'000};
constexpr const char* batches_of_a_step = "4";

/// Runs steps until one fails; the later ones depend on it and are not tried.
class ladder {
 public:
  template <class Try>
  void climb(std::string name, Try attempt) {
    isolation_step step;
    step.name = std::move(name);
    if (broken_.empty()) {
      step.tried = true;
      step.told = attempt();
      step.passed = step.told.empty();
      if (!step.passed) broken_ = step.name;
    } else {
      step.told = "not tried: " + broken_ + " failed";
    }
    steps_.push_back(std::move(step));
  }
  void leave_out(std::string name, std::string why) {
    isolation_step step;
    step.name = std::move(name);
    step.told = std::move(why);
    steps_.push_back(std::move(step));
  }
  std::vector<isolation_step> steps() && { return std::move(steps_); }

 private:
  std::string broken_;
  std::vector<isolation_step> steps_;
};

/// What went wrong; empty on success.
std::string trouble_of(const ended_child& end) {
  if (end.ending == child_outcome::how::finished && end.exit_code == 0) return {};
  const std::string said = last_line(end.errors);
  if (end.ending != child_outcome::how::finished)
    return end.trouble + (said.empty() ? "" : "; it wrote: " + said);
  return said.empty() ? fmt::format("exit code {}", end.exit_code) : said;
}

// This very program, even if its file has been replaced meanwhile.
constexpr const char* this_program = "/proc/self/exe";

std::string run_job(const isolation_request& job, std::uint32_t workers, const std::string& device) {
  std::vector<std::string> words{
      "run", job.file, "--quiet", "--batches", batches_of_a_step, "--workers", std::to_string(workers)};
  for (const std::string& s : job.sets) words.insert(words.end(), {"--set", s});
  // Do not touch anything outside: no quarantine file, no port.
  words.insert(words.end(), {"--set", "quarantine.file=\"\"", "--set", "metrics.listen=\"\""});
  if (!device.empty()) words.insert(words.end(), {"--device", device});
  return trouble_of(run_to_the_end(this_program, words, step_deadline));
}

}  // namespace

std::vector<isolation_step> isolate(const isolation_request& job) {
  ladder steps;
  if (job.custom_dataset) {
    steps.leave_out("0 workers", "only the worker program can read a custom dataset");
  } else {
    steps.climb("0 workers", [&] {
      std::vector<std::string> words{"doctor", job.file, "--load-only"};
      for (const std::string& s : job.sets) words.insert(words.end(), {"--set", s});
      return trouble_of(run_to_the_end(this_program, words, step_deadline));
    });
  }
  steps.climb("1 worker, host device", [&] { return run_job(job, 1, "host"); });
  if (job.workers > 1) {
    steps.climb(fmt::format("{} workers, host device", job.workers),
                [&] { return run_job(job, job.workers, "host"); });
  }
  if (!job.gpu) {
    for (const char* name : {"GPU without pinning", "GPU with pinning", "all together"})
      steps.leave_out(name, job.why_no_gpu);
    return std::move(steps).steps();
  }
  steps.climb("GPU without pinning", [&] { return copy_without_pinning(job.ordinal); });
  steps.climb("GPU with pinning", [&]() -> std::string {
    if (job.deep.error) return job.deep.child.step + ": " + job.deep.error->message;
    if (!job.deep.child.good()) return job.deep.child.step + ": " + job.deep.child.trouble;
    if (!job.deep.equal) return "the values that came back differ from the host's";
    if (job.deep.pinned < job.deep.asked_to_pin) return "the arena could not be page-locked";
    return {};
  });
  steps.climb("all together", [&] { return run_job(job, job.workers, ""); });
  return std::move(steps).steps();
}

int load_without_workers(const config& settings) {
  constexpr std::uint64_t samples_max = 32;
  try {
    const auto prepared = value_or_throw(prepare_dataset(settings));
    const auto dataset = value_or_throw(make_dataset(settings, prepared.descriptors()));
    const dataset_description d = dataset->describe();
    dataset->setup({0, 1, settings.sampler.seed});
    const auto layout = value_or_throw(lay_out(d.tensors, 1));
    std::vector<std::byte> memory(layout.bytes);
    std::vector<std::span<std::byte>> tensors;
    for (const auto& t : layout.tensors) tensors.push_back(std::span(memory).subspan(t.offset, t.row_bytes));
    const std::uint64_t samples = std::min(d.samples, samples_max);
    std::uint64_t good = 0;
    std::string first_failure;
    for (std::uint64_t i = 0; i < samples; ++i) {
      random_source random(settings.sampler.seed, 0, i);
      try {
        dataset->load({i, 0, 1, random}, sample_slot(tensors));
        ++good;
      } catch (const std::exception& e) {
        if (first_failure.empty()) first_failure = dataset->name_of(i) + ": " + e.what();
      }
    }
    if (good > 0) return 0;
    std::fprintf(stderr, "none of the first %llu samples could be loaded; %s\n",
                 static_cast<unsigned long long>(samples), printable(first_failure).c_str());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", printable(e.what()).c_str());
  }
  return 1;
}

}  // namespace penstock::doctor
