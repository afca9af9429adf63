#include "actors/session/sizing.hpp"
#include "runtime/base/worker_places.hpp"
#include "runtime/dataset/factory.hpp"
#include "runtime/device/transfer_plan.hpp"
#include "runtime/process/process_facts.hpp"
#include "tools/penstock/doctor/gather.hpp"

#include <algorithm>
#include <cstdlib>

namespace penstock::doctor {
namespace {

// Numeric libraries read these variables. If they are unset, each worker uses every core.
constexpr const char* thread_variables[] = {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"};

void count_threads(const config& settings, job_facts& job) {
  for (const char* name : thread_variables) {
    const auto own = settings.loader.env.find(name);
    const char* inherited = std::getenv(name);
    const std::string value = own != settings.loader.env.end() ? own->second
                              : inherited != nullptr           ? inherited
                                                               : "";
    const auto threads = static_cast<std::uint32_t>(std::clamp(std::atoi(value.c_str()), 0, 4096));
    if (threads <= job.threads_per_worker) continue;
    job.threads_per_worker = threads;
    job.threads_from = fmt::format("{}={}", name, threads);
  }
}

/// The memory that the arena and the ring of device buffers need for batches of this dataset.
result<void> add_needs(const config& settings, const dataset_description& d, const sampling& by,
                       job_facts& job) {
  const auto order = session::plan_of(settings, d, by);
  auto layout = lay_out(d.tensors, order ? session::rows_max_of(*order) : settings.sampler.batch_size);
  if (!layout) return tl::unexpected(std::move(layout.error()));
  auto shape = session::geometry_of(settings, *layout, places_of(settings.loader));
  if (!shape) return tl::unexpected(std::move(shape.error()));
  job.memory_need = session::memory_need_of(settings, *shape, job.workers);
  job.slot_bytes = shape->slot_bytes;
  auto plan = device::plan_transfer(
      *layout, {settings.gpu.layout, settings.gpu.dtype, settings.gpu.mean, settings.gpu.std});
  if (!plan) return tl::unexpected(std::move(plan.error()));
  job.device_need =
      settings.gpu.buffers * (round_up(plan->buffer_bytes, layout_alignment) + plan->staging_bytes());
  return {};
}

}  // namespace

void look_at_job(const config& settings, const job_request& request, facts& to) {
  job_facts& job = to.job;
  job.has_config = request.has_config;
  job.device = settings.gpu.device;
  job.demand = job.device == "auto" ? gpu_demand::if_there : gpu_demand::required;
  if (job.device == "host") {
    job.demand = gpu_demand::none;
    job.why_no_gpu = "[gpu] device = \"host\"";
  }
  if (request.cpu_only) {
    job.demand = gpu_demand::none;
    job.why_no_gpu = "--cpu-only";
  }
  job.workers = std::clamp<std::uint32_t>(
      settings.loader.workers.value_or(process::usable_cores(request.root)), 1, settings.loader.limits.max);
  job.workers_max = std::max(job.workers, settings.loader.limits.max);
  count_threads(settings, job);

  const bool custom = settings.dataset.type == dataset_type::custom;
  std::vector<int> indexes;
  std::optional<prepared_dataset> prepared;
  if (request.has_config && !custom) {
    if (auto listed = prepare_stream(settings)) {
      prepared = std::move(*listed);
      indexes = prepared->descriptors();
      to.data.notices = prepared->notices;
    } else {
      to.data.trouble = listed.error();
    }
  }
  auto tried = try_a_worker(settings, request.has_config && (custom || prepared), indexes);
  to.worker = std::move(tried.worker);
  const std::optional<dataset_description> described =
      prepared ? std::optional(prepared->description) : std::move(tried.described);
  if (!described) return;
  to.data.type = described->type;
  to.data.samples = described->samples;
  auto by = prepared ? result<sampling>(prepared->order) : read_sampling(settings, *described, -1);
  if (!by) {
    to.data.trouble = by.error();
    return;
  }
  auto ok =
      session::check_there_are_batches(settings, by->order ? by->order->positions() : described->samples);
  if (ok) ok = add_needs(settings, *described, *by, job);
  if (!ok) to.data.trouble = ok.error();
}

}  // namespace penstock::doctor
