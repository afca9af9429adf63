#include "runtime/config/foreign_names.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <utility>

namespace penstock::config_file {
namespace {

using std::string_view_literals::operator""sv;

constexpr std::string_view prefetching =
    "batches that each worker prepares ahead; [gpu] buffers: batches that wait on the device";
constexpr std::string_view element_types =
    "dtype is one of \"uint8\", \"float16\", \"bfloat16\" or \"float32\"";
constexpr std::string_view pinned =
    "nothing to set: workers write into memory that is already page-locked for the device";
constexpr std::string_view in_the_worker =
    "your worker program does this, in Dataset::setup, load or collate (docs/datasets.md)";

constexpr std::array names{
    foreign_name{"num_workers", "loader.workers", ""},
    foreign_name{"n_workers", "loader.workers", ""},
    foreign_name{"nworkers", "loader.workers", ""},
    foreign_name{"worker_count", "loader.workers", ""},
    foreign_name{"num_processes", "loader.workers", ""},
    foreign_name{"num_threads", "loader.workers", "workers are processes; each loads one sample at a time"},
    foreign_name{"num_parallel_calls", "loader.workers", ""},
    foreign_name{"prefetch_factor", "loader.slots_per_worker", prefetching},
    foreign_name{"prefetch", "loader.slots_per_worker", prefetching},
    foreign_name{"prefetch_batches", "loader.slots_per_worker", prefetching},
    foreign_name{"prefetch_queue_depth", "loader.slots_per_worker", prefetching},
    foreign_name{"queue_depth", "loader.slots_per_worker", prefetching},
    foreign_name{"prefetch_to_device", "gpu.buffers", ""},
    foreign_name{"buffer_size", "gpu.buffers", "in batches; shuffling needs no buffer"},
    foreign_name{"pin_memory", "", pinned},
    foreign_name{"pin_memory_device", "", pinned},
    foreign_name{"pinned_memory", "", pinned},
    foreign_name{"persistent_workers", "",
                 "nothing to set: workers live as long as the session, through all epochs"},
    foreign_name{"batch", "sampler.batch_size", ""},
    foreign_name{"batchsize", "sampler.batch_size", ""},
    foreign_name{"bs", "sampler.batch_size", ""},
    foreign_name{"drop_remainder", "sampler.drop_last", ""},
    foreign_name{"drop_last_batch", "sampler.drop_last", ""},
    foreign_name{"last_batch_policy", "sampler.drop_last", ""},
    foreign_name{"num_epochs", "sampler.epochs", ""},
    foreign_name{"n_epochs", "sampler.epochs", ""},
    foreign_name{"max_epochs", "sampler.epochs", ""},
    foreign_name{"random_seed", "sampler.seed", ""},
    foreign_name{"manual_seed", "sampler.seed", ""},
    foreign_name{"generator", "sampler.seed", ""},
    foreign_name{"random_shuffle", "sampler.shuffle", ""},
    foreign_name{"shuffle_files", "sampler.shuffle", ""},
    foreign_name{"reshuffle_each_iteration", "sampler.shuffle",
                 "each epoch has its own order, fixed by the seed"},
    foreign_name{"num_replicas", "sampler.world_size", ""},
    foreign_name{"num_shards", "sampler.world_size", ""},
    foreign_name{"shard_id", "sampler.rank", ""},
    foreign_name{"shard_index", "sampler.rank", ""},
    foreign_name{"timeout", "loader.hang.item_timeout", "the time that one sample may take"},
    foreign_name{"worker_timeout", "loader.hang.item_timeout", "the time that one sample may take"},
    foreign_name{"worker_init_fn", "", in_the_worker},
    foreign_name{"collate_fn", "", in_the_worker},
    foreign_name{"multiprocessing_context", "",
                 "nothing to set: workers start as fresh programs (exec), not as forks of your program"},
    foreign_name{"transform", "image.augment", ""},
    foreign_name{"transforms", "image.augment", ""},
    foreign_name{"image_size", "image.size", ""},
    foreign_name{"img_size", "image.size", ""},
    foreign_name{"crop_size", "image.size", ""},
    foreign_name{"resize", "image.size", ""},
    foreign_name{"horizontal_flip", "image.flip", ""},
    foreign_name{"hflip", "image.flip", ""},
    foreign_name{"root", "dataset.path", ""},
    foreign_name{"data_dir", "dataset.path", ""},
    foreign_name{"data_path", "dataset.path", ""},
    foreign_name{"file_root", "dataset.path", ""},
    foreign_name{"precision", "gpu.dtype", element_types},
    foreign_name{"amp", "gpu.dtype", element_types},
    foreign_name{"fp16", "gpu.dtype", element_types},
    foreign_name{"bf16", "gpu.dtype", element_types},
    foreign_name{"half", "gpu.dtype", element_types},
    foreign_name{"device_id", "gpu.device", "\"cuda:0\" is the first GPU"},
    foreign_name{"gpu_id", "gpu.device", "\"cuda:0\" is the first GPU"},
    foreign_name{"normalize", "gpu.mean", "[gpu] mean and std"},
    foreign_name{"normalise", "gpu.mean", "[gpu] mean and std"},
    foreign_name{"channels_last", "gpu.layout", "\"nhwc\" has the channels last"},
    foreign_name{"data_format", "gpu.layout", ""},
    foreign_name{"verbose", "log.level", ""},
    foreign_name{"log_level", "log.level", ""},
    foreign_name{"on_error", "loader.on_bad_sample", ""},
    foreign_name{"ignore_errors", "loader.on_bad_sample", ""},
    foreign_name{"max_restarts", "loader.restart.intensity.max", ""},
};

constexpr std::array<std::pair<std::string_view, std::string_view>, 24> dtypes{{
    {"fp16"sv, "float16"sv}, {"f16"sv, "float16"sv},  {"half"sv, "float16"sv},  {"bf16"sv, "bfloat16"sv},
    {"fp32"sv, "float32"sv}, {"f32"sv, "float32"sv},  {"float"sv, "float32"sv}, {"single"sv, "float32"sv},
    {"full"sv, "float32"sv}, {"fp64"sv, "float64"sv}, {"f64"sv, "float64"sv},   {"double"sv, "float64"sv},
    {"byte"sv, "uint8"sv},   {"u8"sv, "uint8"sv},     {"uchar"sv, "uint8"sv},   {"i8"sv, "int8"sv},
    {"char"sv, "int8"sv},    {"short"sv, "int16"sv},  {"i16"sv, "int16"sv},     {"int"sv, "int32"sv},
    {"i32"sv, "int32"sv},    {"long"sv, "int64"sv},   {"i64"sv, "int64"sv},     {"u16"sv, "uint16"sv},
}};

constexpr std::array truths{"true"sv, "yes"sv, "on"sv, "1"sv};
constexpr std::array untruths{"false"sv, "no"sv, "off"sv, "0"sv};
constexpr std::array nulls{"none"sv, "null"sv, "nil"sv};

std::string canonical(std::string_view name) {
  std::string made(name);
  std::ranges::transform(made, made.begin(),
                         [](unsigned char c) { return c == '-' ? '_' : static_cast<char>(std::tolower(c)); });
  return made;
}

}  // namespace

std::span<const foreign_name> foreign_names() {
  return names;
}

const foreign_name* foreign_key(std::string_view name) {
  const auto found = std::ranges::find(names, canonical(name), &foreign_name::name);
  return found == names.end() ? nullptr : &*found;
}

std::string_view foreign_dtype(std::string_view name) {
  const std::string wanted = canonical(name);
  const auto found =
      std::ranges::find(dtypes, std::string_view(wanted), [](const auto& one) { return one.first; });
  return found == dtypes.end() ? std::string_view() : found->second;
}

std::string_view foreign_boolean(std::string_view word) {
  const std::string wanted = canonical(word);
  if (std::ranges::find(truths, std::string_view(wanted)) != truths.end()) return "true";
  if (std::ranges::find(untruths, std::string_view(wanted)) != untruths.end()) return "false";
  return {};
}

bool is_foreign_null(std::string_view word) {
  return std::ranges::find(nulls, std::string_view(canonical(word))) != nulls.end();
}

}  // namespace penstock::config_file
