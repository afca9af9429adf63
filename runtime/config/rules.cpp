#include "runtime/config/rules.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/base/dataset_type.hpp"
#include "runtime/base/member_choice.hpp"
#include "runtime/base/shape_limit.hpp"
#include "runtime/base/units.hpp"
#include "runtime/base/worker_places.hpp"
#include "runtime/config/key_table.hpp"
#include "runtime/config/limits.hpp"
#include "runtime/config/mixture_rules.hpp"
#include "runtime/config/spelling.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>

namespace penstock::config_file {
namespace {

using found_list = std::vector<contradiction>;

void check_members(const string_map& members, found_list& found) {
  for (const auto& [tensor, extensions] : members) {
    const auto choice = parse_member_choice(tensor, extensions);
    if (choice) continue;
    const std::string& message = choice.error().message;
    const std::size_t line = message.find('\n');
    found.push_back({.key = fmt::format("dataset.members.{}", tensor),
                     .message = message.substr(0, line),
                     .label = message.substr(line + 1)});
  }
}

void check_tokens(const dataset_config& dataset, found_list& found) {
  using enum dtype;
  // uint8 passes, because it is the default: files that state their own type need no 'dtype'.
  if (const dtype given = dataset.dtype;
      given != uint8 && given != uint16 && given != uint32 && given != int32 && given != int64) {
    found.push_back(
        {.key = "dataset.dtype",
         .other = "dataset.type",
         .message = fmt::format("'dtype' \"{}\" in [dataset] cannot hold token ids", spelling(given)),
         .label = "not a type for token ids",
         .help = "flat files of tokens are \"uint16\", \"uint32\", \"int32\" or \"int64\""});
  }
  if (dataset.eos && dataset.vocab && *dataset.eos >= *dataset.vocab) {
    found.push_back({.key = "dataset.eos",
                     .other = "dataset.vocab",
                     .message = fmt::format("'eos' {} in [dataset] is not below 'vocab' {}", *dataset.eos, *dataset.vocab),
                     .label = fmt::format("must be less than {}", *dataset.vocab),
                     .help = "'vocab' is the number of ids, which count from 0"});
  }
}

void check_dataset(const dataset_config& dataset, found_list& found) {
  const std::string_view type = spelling(dataset.type);
  if (facts_of(dataset.type).path == path_need::required && dataset.path.empty()) {
    found.push_back({.key = "dataset.path",
                     .other = "dataset.type",
                     .message = fmt::format("'path' in [dataset] is missing: type \"{}\" reads files", type),
                     .label = "needs a path",
                     .help = "add path = \"...\" to [dataset]; it is relative to the file that contains it",
                     .missing = true});
  }
  if (dataset.type == dataset_type::raw && dataset.shape.empty()) {
    found.push_back({.key = "dataset.shape",
                     .other = "dataset.type",
                     .message = "'shape' in [dataset] is missing: raw files do not describe their contents",
                     .label = "needs a shape",
                     .help = "add the shape and dtype of one sample to [dataset]: shape = [...], dtype = \"...\"",
                     .missing = true});
  }
  if (const std::size_t axes = dataset.shape.size(); axes > shape_axes_max) {
    found.push_back({.key = "dataset.shape",
                     .message = fmt::format("'shape' in [dataset] has {}", counted(axes, "axis", "axes")),
                     .label = fmt::format("at most {}", shape_axes_max)});
  }
  if (dataset.type == dataset_type::tar) check_members(dataset.members, found);
  if (dataset.type == dataset_type::tokens) check_tokens(dataset, found);
  if (dataset.type != dataset_type::synthetic) return;
  if (dataset.bytes_per_sample && !dataset.shape.empty()) {
    found.push_back({.key = "dataset.bytes_per_sample",
                     .other = "dataset.shape",
                     .message = "'bytes_per_sample' and 'shape' in [dataset] both say how large a sample is",
                     .label = "write only one of them"});
  }
  for (std::size_t i = 0; i < dataset.faults.size(); ++i) {
    if (dataset.faults[i].sample < dataset.samples) continue;
    found.push_back(
        {.key = fmt::format("dataset.faults[{}].sample", i),
         .other = "dataset.samples",
         .message = fmt::format("the fault is for sample {}, but the dataset has {} ('samples' in [dataset])",
                                dataset.faults[i].sample, counted(dataset.samples, "sample")),
         .label = fmt::format("must be less than {}", dataset.samples)});
  }
}

/// penstock's own worker program knows no custom dataset. Loader hosts may have another program.
void check_program(const penstock::config& values, found_list& found) {
  const auto& hosts = values.loader.hosts;
  if (values.dataset.type != dataset_type::custom || !hosts.listen.empty() || !hosts.connect.empty()) return;
  if (values.loader.command != loader_config().command) return;
  found.push_back({.key = "loader.command",
                   .other = "dataset.type",
                   .message = "'command' in [loader] names no worker program of yours: only your program can read a dataset of type \"custom\"",
                   .label = "needs your worker program",
                   .help = "set 'command' in [loader] to your program, as in command = [\"build/my-worker\"]",
                   .missing = true,
                   .until_complete = true});
}

void check_range(std::string_view key, const range_2d& range, found_list& found) {
  if (range[0] <= range[1]) return;
  found.push_back(
      {.key = fmt::format("image.{}", key),
       .message = fmt::format("'{}' in [image] has its limits in the wrong order: low {} > high {}", key,
                              range[0], range[1]),
       .label = fmt::format("did you mean [{}, {}]?", range[1], range[0])});
}

/// Normalisation of pixels from 0 to 255, as OpenCV and older recipes write it.
void check_normalisation(const penstock::config& values, found_list& found) {
  if (unused(used_with::for_float_images, values)) return;
  const auto check = [&found](std::string_view key, const rgb_values& given) {
    if (std::ranges::all_of(given, [](double one) { return one <= 1; })) return;
    std::string label = "pixels are at most 1";
    if (std::ranges::all_of(given, [](double one) { return one > 1 && one <= 255; })) {
      label = fmt::format("did you mean [{:.4g}, {:.4g}, {:.4g}]?", given[0] / 255, given[1] / 255,
                          given[2] / 255);
    }
    found.push_back(
        {.key = fmt::format("gpu.{}", key),
         .message = fmt::format(
             "'{}' in [gpu] looks right for pixels from 0 to 255, but pixels are from 0 to 1", key),
         .label = std::move(label),
         .help = "a pixel x, from 0 to 255, becomes (x / 255 - mean) / std",
         .doubtful = true});
  };
  check("mean", values.gpu.mean);
  check("std", values.gpu.std);
}

void check_kind(const sampler_config& sampler, const dataset_config& dataset, found_list& found) {
  const auto needs_file = [&](sampler_kind kind, std::string_view key, const std::string& given,
                              std::string_view what) {
    if (sampler.kind != kind || !given.empty()) return;
    found.push_back({.key = fmt::format("sampler.{}", key),
                     .other = "sampler.kind",
                     .message = fmt::format("'{}' in [sampler] is missing: kind \"{}\" needs {}", key,
                                            spelling(kind), what),
                     .label = "needs a file",
                     .help = fmt::format(
                         "add {} = \"...\" to [sampler]; it is relative to the file that contains it", key),
                     .missing = true});
  };
  needs_file(sampler_kind::weighted, "weights", sampler.weights, "one weight for each sample");
  needs_file(sampler_kind::subset, "subset", sampler.subset, "a list of samples");
  if (sampler.kind == sampler_kind::balanced && dataset.type != dataset_type::image_folder && dataset.type != dataset_type::tar) {
    found.push_back(
        {.key = "sampler.kind",
         .other = "dataset.type",
         .message = fmt::format("kind \"balanced\" in [sampler] needs each sample's class before "
                                "loading it, but a dataset of type \"{}\" cannot provide it",
                                spelling(dataset.type)),
         .label = "only image-folder and tar can",
         .help = "give each sample the weight 1 / (samples of its class) with kind = \"weighted\""});
  }
}

void check_sampler(const sampler_config& sampler, found_list& found) {
  if (!sampler.rank || *sampler.rank < sampler.world_size) return;
  found.push_back({.key = "sampler.rank",
                   .other = "sampler.world_size",
                   .message = fmt::format("'rank' {} in [sampler] is not below 'world_size' {}",
                                          *sampler.rank, sampler.world_size),
                   .label = fmt::format("must be less than {}", sampler.world_size),
                   .help = "ranks count from 0"});
}

void check_pool(const loader_config& loader, config_purpose purpose, found_list& found) {
  const limits_config& limits = loader.limits;
  if (limits.min > limits.max) {
    found.push_back(
        {.key = "loader.limits.min",
         .other = "loader.limits.max",
         .message = fmt::format("'min' {} in [loader.limits] is above 'max' {}", limits.min, limits.max),
         .label = fmt::format("must be at most {}", limits.max)});
  }
  if (!loader.workers) return;
  if (*loader.workers == 0) {
    if (has_hosts(loader)) return;
    found.push_back({.key = "loader.workers",
                     .other = "loader.hosts.listen",
                     .message = "'workers' is 0 in [loader], but no other machine can provide any",
                     .label = purpose == config_purpose::jobs ? "no worker would run jobs" : "no worker would load samples",
                     .help = purpose == config_purpose::jobs && !loader.env.contains("PENSTOCK_POOL_SETUP")
                                 ? "set 'workers' to 1 or more"
                                 : "set 'workers' to 1 or more, or in [loader.hosts] 'listen' to the address where hosts join, or "
                             "'connect' to the addresses of hosts that listen"});
  } else if (*loader.workers > limits.max) {
    found.push_back({.key = "loader.workers",
                     .other = "loader.limits.max",
                     .message = fmt::format("'workers' {} in [loader] is above 'max' {} in [loader.limits]",
                                            *loader.workers, limits.max),
                     .label = fmt::format("must be at most {}", limits.max)});
  } else if (*loader.workers < limits.min && limits.min <= limits.max) {
    found.push_back({.key = "loader.limits.min",
                     .other = "loader.workers",
                     .message = fmt::format("'min' {} in [loader.limits] is above 'workers' {} in [loader]",
                                            limits.min, *loader.workers),
                     .label = fmt::format("must be at most {}", *loader.workers),
                     .help = "a run ends when fewer than 'min' workers are ready"});
  }
}

void check_hedge(const penstock::config& values, config_purpose purpose, found_list& found) {
  if (!values.loader.hedge) return;
  if (purpose == config_purpose::jobs) {
    found.push_back({.key = "loader.hedge",
                     .message = "'hedge' in [loader] starts late batches a second time, but a pool runs jobs, which "
                                "may have side effects",
                     .label = "only for streams of batches",
                     .help = "leave 'hedge' out; [jobs] timeout ends a job that takes too long"});
  } else if (values.quarantine.max_attempts == 1) {
    found.push_back({.key = "loader.hedge",
                     .other = "quarantine.max_attempts",
                     .message = "'hedge' in [loader] starts late batches a second time, but 'max_attempts' in [quarantine] "
                                "allows a sample only one attempt",
                     .label = "needs at least 2 attempts",
                     .help = "leave one of the two out"});
  } else if (values.loader.workers == 1U) {
    found.push_back({.key = "loader.hedge",
                     .other = "loader.workers",
                     .message = "'hedge' in [loader] has no effect with one worker",
                     .label = "needs a second worker",
                     .help = "set 'workers' in [loader] to 2 or more",
                     .doubtful = true});
  }
}

bool is_address(std::string_view text) {
  std::vector<breach> found;
  check_text({.kind = limit_kind::listen_address}, text, found);
  return !text.empty() && text.front() != ':' && found.empty();
}

void check_hosts(const penstock::config& values, config_purpose purpose, found_list& found) {
  if (!has_hosts(values.loader)) return;
  const hosts_config& hosts = values.loader.hosts;
  const std::string name = hosts.listen.empty() ? "connect" : "listen";
  for (const std::string& one : hosts.connect) {
    if (is_address(one)) continue;
    found.push_back({.key = "loader.hosts.connect",
                     .message = fmt::format("'connect' in [loader.hosts] has '{}', which is not an address and port", one),
                     .label = "must be addresses of hosts",
                     .help = "write HOST:PORT, as in \"10.0.0.7:7077\""});
  }
  if (purpose == config_purpose::jobs && !values.loader.env.contains("PENSTOCK_POOL_SETUP")) {
    found.push_back({.key = "loader.hosts." + name,
                     .message = fmt::format("'{}' in [loader.hosts] admits workers on other machines, which do not have the worker "
                                            "program of this pool",
                                            name),
                     .label = "only for streams of batches and Python pools",
                     .help = fmt::format("leave '{}' out", name)});
  } else if (purpose == config_purpose::jobs && hosts.insecure) {
    found.push_back({.key = "loader.hosts.insecure",
                     .message = "'insecure' is true in [loader.hosts], but a pool sends code to its hosts",
                     .label = "code is sent only over connections with a secret",
                     .help = "set 'secret_file' in [loader.hosts] instead"});
  }
}

void check_backoff(const backoff_config& backoff, found_list& found) {
  if (backoff.base > backoff.max) {
    found.push_back(
        {.key = "loader.restart.backoff.base",
         .other = "loader.restart.backoff.max",
         .message = fmt::format("'base' {} in [loader.restart.backoff] is above 'max' {}",
                                duration_as_config(backoff.base), duration_as_config(backoff.max)),
         .label = fmt::format("must be at most {}", duration_as_config(backoff.max))});
  } else if (backoff.factor == 1.0 && backoff.base < backoff.max) {
    found.push_back({.key = "loader.restart.backoff.factor",
                     .other = "loader.restart.backoff.max",
                     .message = fmt::format(
                         "'factor' is 1 in [loader.restart.backoff], so the wait never reaches 'max' {}",
                         duration_as_config(backoff.max)),
                     .label = "the wait never grows",
                     .help = fmt::format("for a constant wait make 'max' equal to 'base', {}",
                                         duration_as_config(backoff.base))});
  }
}

void check_group(const group_config& group, const gpu_config& gpu, const scheduler_config& scheduler,
                 found_list& found) {
  if (group.communicator == communicator_kind::none) return;
  const std::string what = fmt::format("'communicator' \"{}\" in [group]", spelling(group.communicator));
  // PENSTOCK_NCCL may name the tests' library, which works on host memory.
  if (gpu.device == "host" && std::getenv("PENSTOCK_NCCL") == nullptr) {
    found.push_back({.key = "group.communicator",
                     .other = "gpu.device",
                     .message = what + " needs a GPU for each rank, but 'device' in [gpu] is \"host\"",
                     .label = "NCCL connects GPUs only",
                     .help = "groups without a communicator work on the host device: leave 'communicator' out"});
  }
  if (scheduler.order == order_rule::relaxed) {
    found.push_back(
        {.key = "scheduler.order",
         .other = "group.communicator",
         .message =
             what +
             " makes all ranks take their batches step by step, but 'order' in [scheduler] is \"relaxed\"",
         .label = "must be \"strict\"",
         .help = "leave 'order' out"});
  }
}

}  // namespace

std::vector<contradiction> contradictions_of(const penstock::config& values, config_purpose purpose) {
  found_list found;
  if (purpose == config_purpose::stream) {
    if (values.datasets.empty()) {
      check_dataset(values.dataset, found);
      check_program(values, found);
    } else {
      check_mixture(values, check_dataset, found);
    }
    check_range("scale", values.image.scale, found);
    check_range("ratio", values.image.ratio, found);
    check_normalisation(values, found);
    check_sampler(values.sampler, found);
    if (values.datasets.empty()) check_kind(values.sampler, values.dataset, found);
    check_group(values.group, values.gpu, values.scheduler, found);
  }
  check_pool(values.loader, purpose, found);
  check_hedge(values, purpose, found);
  check_hosts(values, purpose, found);
  check_backoff(values.loader.restart.backoff, found);
  return found;
}

}  // namespace penstock::config_file
