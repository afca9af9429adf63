#include "runtime/config/foreign_names.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string>
#include <utility>

namespace penstock::config_file {
namespace {

constexpr std::string_view prefetching =
    "batches that each worker prepares ahead; [gpu] buffers: batches that wait on the device";
constexpr std::string_view element_types =
    "dtype is one of \"uint8\", \"float16\", \"bfloat16\" or \"float32\"";
constexpr std::string_view pinned =
    "nothing to set: workers write into memory that is already page-locked for the device";
constexpr std::string_view in_the_worker =
    "your worker program does this, in Dataset::setup, load or collate (docs/datasets.md)";

constexpr foreign_name equivalents[] = {
    {"num_workers n_workers nworkers worker_count num_processes num_parallel_calls", "loader.workers", ""},
    {"num_threads", "loader.workers", "workers are processes; each loads one sample at a time"},
    {"prefetch_factor prefetch prefetch_batches prefetch_queue_depth queue_depth", "loader.slots_per_worker",
     prefetching},
    {"prefetch_to_device", "gpu.buffers", ""},
    {"buffer_size", "gpu.buffers", "in batches; shuffling needs no buffer"},
    {"pin_memory pin_memory_device pinned_memory", "", pinned},
    {"persistent_workers", "", "nothing to set: workers live as long as the session, through all epochs"},
    {"batch batchsize bs", "sampler.batch_size", ""},
    {"drop_remainder drop_last_batch last_batch_policy", "sampler.drop_last", ""},
    {"num_epochs n_epochs max_epochs", "sampler.epochs", ""},
    {"random_seed manual_seed generator", "sampler.seed", ""},
    {"random_shuffle shuffle_files", "sampler.shuffle", ""},
    {"reshuffle_each_iteration", "sampler.shuffle", "each epoch has its own order, fixed by the seed"},
    {"num_replicas num_shards", "sampler.world_size", ""},
    {"shard_id shard_index", "sampler.rank", ""},
    {"timeout worker_timeout", "loader.hang.item_timeout", "the time that one sample may take"},
    {"worker_init_fn collate_fn", "", in_the_worker},
    {"multiprocessing_context", "",
     "nothing to set: workers start as fresh programs (exec), not as forks of your program"},
    {"transform transforms", "image.augment", ""},
    {"image_size img_size crop_size resize", "image.size", ""},
    {"horizontal_flip hflip", "image.flip", ""},
    {"root data_dir data_path file_root", "dataset.path", ""},
    {"precision amp fp16 bf16 half", "gpu.dtype", element_types},
    {"device_id gpu_id", "gpu.device", "\"cuda:0\" is the first GPU"},
    {"normalize normalise", "gpu.mean", "[gpu] mean and std"},
    {"channels_last", "gpu.layout", "\"nhwc\" has the channels last"},
    {"data_format", "gpu.layout", ""},
    {"verbose log_level", "log.level", ""},
    {"on_error ignore_errors", "loader.on_bad_sample", ""},
    {"max_restarts", "loader.restart.intensity.max", ""},
};

constexpr std::pair<std::string_view, std::string_view> dtypes[] = {
    {"fp16 f16 half", "float16"}, {"bf16", "bfloat16"},    {"fp32 f32 float single full", "float32"}, {"fp64 f64 double", "float64"},
    {"byte u8 uchar", "uint8"},   {"i8 char", "int8"},     {"short i16", "int16"},                    {"int i32", "int32"},
    {"long i64", "int64"},        {"u16", "uint16"},
};

std::string canonical(std::string_view name) {
  std::string made(name);
  std::ranges::transform(made, made.begin(),
                         [](unsigned char c) { return c == '-' ? '_' : static_cast<char>(std::tolower(c)); });
  return made;
}

/// Whether `word` is one of `words`, which are separated by blanks.
bool is_among(std::string_view words, std::string_view word) {
  return word.find(' ') == std::string_view::npos && fmt::format(" {} ", words).find(fmt::format(" {} ", word)) != std::string::npos;
}

}  // namespace

std::span<const foreign_name> foreign_names() {
  return equivalents;
}

const foreign_name* foreign_key(std::string_view name) {
  const auto* const found = std::ranges::find_if(equivalents, [&](const foreign_name& one) { return is_among(one.names, canonical(name)); });
  return found == std::end(equivalents) ? nullptr : found;
}

std::string_view foreign_dtype(std::string_view name) {
  const auto* const found = std::ranges::find_if(dtypes, [&](const auto& one) { return is_among(one.first, canonical(name)); });
  return found == std::end(dtypes) ? std::string_view() : found->second;
}

std::string_view foreign_boolean(std::string_view word) {
  if (is_among("true yes on 1", canonical(word))) return "true";
  return is_among("false no off 0", canonical(word)) ? "false" : "";
}

bool is_foreign_null(std::string_view word) {
  return is_among("none null nil", canonical(word));
}

}  // namespace penstock::config_file
