#include "runtime/base/launcher_environment.hpp"

#include "runtime/base/number.hpp"
#include "runtime/base/text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <vector>

namespace penstock {
namespace {

struct launcher {
  std::string name;  // for people
  std::string rank, size, local_rank, local_size, starts;
  std::vector<std::string> job;  // variables; the values of those that are set form launcher_place::job
  std::string also{};            // another variable that must be set
  std::string each{};            // a variable that ranks have and a script that runs once for all ranks lacks
  bool one_at_a_time = false;    // as in launcher_place
};

const std::array<launcher, 6>& launchers() {
  static const std::array<launcher, 6> all{{
      {"penstock launch",
       "RANK",
       "WORLD_SIZE",
       "LOCAL_RANK",
       "LOCAL_WORLD_SIZE",
       "PENSTOCK_GROUP_STARTS",
       {},
       "PENSTOCK_GROUP_STARTS",
       {},
       true},
      {"torchrun",
       "RANK",
       "WORLD_SIZE",
       "LOCAL_RANK",
       "LOCAL_WORLD_SIZE",
       "TORCHELASTIC_RESTART_COUNT",
       {"TORCHELASTIC_RUN_ID", "MASTER_PORT"}},
      {"mpirun",
       "OMPI_COMM_WORLD_RANK",
       "OMPI_COMM_WORLD_SIZE",
       "OMPI_COMM_WORLD_LOCAL_RANK",
       "OMPI_COMM_WORLD_LOCAL_SIZE",
       {},
       {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
      // srun also sets PMI_RANK for some MPIs, but never MPI_LOCALRANKID.
      {"mpiexec (Hydra)",
       "PMI_RANK",
       "PMI_SIZE",
       "MPI_LOCALRANKID",
       "MPI_LOCALNRANKS",
       {},
       {"PMI_PORT"},
       "MPI_LOCALRANKID"},
      {"srun",
       "SLURM_PROCID",
       "SLURM_NTASKS",
       "SLURM_LOCALID",
       {},
       "SLURM_RESTART_COUNT",
       {"SLURM_JOB_ID", "SLURM_STEP_ID"},
       {},
       "SLURM_STEP_ID"},  // a batch script also has the variables above, but runs only once
      {"Kubernetes",
       "JOB_COMPLETION_INDEX",
       "WORLD_SIZE",
       "LOCAL_RANK",
       "LOCAL_WORLD_SIZE",
       {},
       {"JOB_NAME"}},
  }};
  return all;
}

constexpr std::uint32_t world_size_max = 1'048'576;  // the limit of [sampler] world_size

template <class Number>
result<Number> number_in(const std::string& text, const std::string& name) {
  if (const auto number = whole_number<Number>(text)) return *number;
  return refuse(errc::config, "{} is '{}', which is not a whole number", name,
                printable(shortened(text, 60)));
}

result<std::optional<std::uint32_t>> number_if_set(const variable_lookup& variables, const std::string& name) {
  const auto text = name.empty() ? std::nullopt : variables(name);
  if (!text) return std::optional<std::uint32_t>();
  auto number = number_in<std::uint32_t>(*text, name);
  if (!number) return tl::unexpected(std::move(number.error()));
  return std::optional(*number);
}

/// "4(x2),3": how many tasks each node has. Returns the number for node `index`.
std::optional<std::uint32_t> tasks_of_node(std::string_view list, std::uint32_t index) {
  while (!list.empty()) {
    const std::string_view item = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), item.size() + 1));
    std::uint32_t tasks = 0;
    std::uint32_t times = 1;
    const char* const end = item.data() + item.size();
    const auto [rest, status] = std::from_chars(item.data(), end, tasks);
    if (status != std::errc{}) return std::nullopt;
    constexpr std::string_view repeat = "(x";
    const std::string_view behind(rest, static_cast<std::size_t>(end - rest));
    if (behind.starts_with(repeat)) std::from_chars(rest + repeat.size(), end, times);
    if (index < times) return tasks;
    index -= times;
  }
  return std::nullopt;
}

result<void> add_local(launcher_place& place, const launcher& by, const variable_lookup& variables) {
  auto local = number_if_set(variables, by.local_rank);
  if (!local) return tl::unexpected(std::move(local.error()));
  place.local_rank = *local;
  auto size = number_if_set(variables, by.local_size);
  if (!size) return tl::unexpected(std::move(size.error()));
  place.local_world_size = *size;
  if (by.name == "srun") {
    const auto node = number_if_set(variables, "SLURM_NODEID");
    auto tasks = variables("SLURM_STEP_TASKS_PER_NODE");
    if (!tasks) tasks = variables("SLURM_TASKS_PER_NODE");
    if (node && *node && tasks) place.local_world_size = tasks_of_node(*tasks, **node);
  }
  // Each pod is a host.
  if (by.name == "Kubernetes" && !place.local_rank) {
    place.local_rank = 0;
    place.local_world_size = 1;
  }
  if (place.local_rank && place.local_world_size && *place.local_rank >= *place.local_world_size) {
    return refuse(errc::config, "{} is {}, but there are {} ranks on this host according to {}",
                  by.local_rank, *place.local_rank, *place.local_world_size, place.launcher);
  }
  return {};
}

std::string job_of(const launcher& by, const variable_lookup& variables) {
  if (const auto given = variables("PENSTOCK_GROUP")) return *given;
  std::string job;
  for (const std::string& name : by.job) {
    const auto part = variables(name);
    if (!part || *part == "none") continue;  // torchrun without --rdzv-id
    job += (job.empty() ? "" : ".") + *part;
  }
  return job;
}

}  // namespace

result<std::optional<launcher_place>> launcher_place_in(const variable_lookup& variables) {
  const launcher* by = nullptr;
  std::optional<std::string> rank;
  for (const launcher& one : launchers()) {
    if (!one.also.empty() && !variables(one.also)) continue;
    rank = variables(one.rank);
    if (!rank) continue;
    by = &one;
    break;
  }
  if (by == nullptr) return std::optional<launcher_place>();
  launcher_place place{.launcher = by->name,
                       .rank_variable = by->rank,
                       .size_variable = by->size,
                       .local_rank_variable = by->local_rank};
  const auto size = variables(by->size);
  if (!size) {
    const bool pod = by->name == "Kubernetes";
    return refuse(errc::config, "{} is set, but {} is not: {}", by->rank, by->size,
                  pod ? "Kubernetes sets only the first; in the pod's template, set the other to the number "
                        "of completions"
                      : by->name + " sets both");
  }
  const auto own = number_in<std::uint32_t>(*rank, by->rank);
  if (!own) return tl::unexpected(own.error());
  const auto world = number_in<std::uint32_t>(*size, by->size);
  if (!world) return tl::unexpected(world.error());
  if (*world > world_size_max)
    return refuse(errc::config, "{} is {}; a group has at most {} ranks", by->size, *world, world_size_max);
  if (*own >= *world)
    return refuse(errc::config, "{} is {}, but must be below {}, which is {}", by->rank, *own, by->size,
                  *world);
  place.rank = *own;
  place.world_size = *world;
  if (auto ok = add_local(place, *by, variables); !ok) return tl::unexpected(std::move(ok.error()));
  const auto starts = number_if_set(variables, by->starts);
  if (!starts) return tl::unexpected(starts.error());
  place.starts = starts->value_or(0);
  place.one_at_a_time = by->one_at_a_time;
  place.runs_in_each_rank = by->each.empty() || variables(by->each).has_value();
  place.job = job_of(*by, variables);
  return std::optional(std::move(place));
}

result<launcher_place> required_launcher_place(const variable_lookup& variables) {
  auto found = launcher_place_in(variables);
  if (!found) return tl::unexpected(std::move(found.error()));
  if (*found) return std::move(**found);
  std::string known;
  for (const launcher& one : launchers())
    known += fmt::format("{}{} ({})", known.empty() ? "" : ", ", one.rank, one.name);
  return refuse(errc::config, "the environment has no rank from a launcher; looked for {}", known);
}

result<std::uint32_t> local_rank_of(const launcher_place& place) {
  if (place.local_rank) return *place.local_rank;
  return refuse(errc::config, "{} is set, but {}, the number of this rank on its host, is not; {} sets both",
                place.rank_variable, place.local_rank_variable, place.launcher);
}

}  // namespace penstock
