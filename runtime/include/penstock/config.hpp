// The settings of a session as plain structs: read them from a file with load_config, or fill them in code.
// The structs come from config_keys.def, which defines each key, its default, its limits and its meaning.
#pragma once

#include <penstock/export.hpp>
#include <penstock/tensor.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// A size in bytes; in a config file always with a unit ("64MiB").
struct byte_size {
  std::uint64_t bytes = 0;
  auto operator<=>(const byte_size&) const = default;
};

using size_2d = std::array<std::uint32_t, 2>;  ///< height, width
using range_2d = std::array<double, 2>;        ///< low, high
using rgb_values = std::array<double, 3>;      ///< red, green, blue
using string_map = std::map<std::string, std::string>;

// In a config file each value is spelled like its enumerator, with '-' for '_'.
enum class dataset_type : std::uint8_t { image_folder, tar, npy, raw, tokens, synthetic, custom };
enum class boundary_rule : std::uint8_t { ignore, mask, pack };
enum class fill_kind : std::uint8_t { stamp, memset, memcpy, random };
enum class fault_kind : std::uint8_t {
  segv,
  abort,
  exit,
  kill,
  hang,
  raise,
  leak,
  stop,
  slow
};  ///< `raise` is spelled "throw"
enum class augment_kind : std::uint8_t { none, centre_crop, random_resized_crop };
enum class orientation_rule : std::uint8_t { exif, ignore };
enum class decoder_rule : std::uint8_t { cpu, gpu, hybrid };
enum class start_rule : std::uint8_t { lazy, eager };
enum class start_method_rule : std::uint8_t { from_template, exec };  ///< "template", "exec"
enum class core_rule : std::uint8_t { near_gpu, anywhere };  ///< "auto", "none"
enum class bad_sample_rule : std::uint8_t { skip, replace, fail };
enum class restart_type : std::uint8_t { permanent, transient, temporary };
enum class sampler_kind : std::uint8_t { shuffle, sequential, weighted, balanced, subset, window };
enum class uneven_rule : std::uint8_t { pad, drop, allow };
enum class order_rule : std::uint8_t { strict, relaxed };
enum class placement_rule : std::uint8_t { embedded, process };
enum class image_layout : std::uint8_t { nchw, nhwc };
enum class exclusive_rule : std::uint8_t { off, report, enforce };
enum class poison_rule : std::uint8_t { fail, skip };
enum class compress_rule : std::uint8_t { none, lz4, zstd };
enum class verify_rule : std::uint8_t { automatic, always, off };
enum class join_rule : std::uint8_t { automatic, not_at_all };  ///< "auto", "never"
enum class communicator_kind : std::uint8_t { none, nccl };
enum class lost_rank_rule : std::uint8_t { fail, wait };
enum class log_level : std::uint8_t { debug, info, warn, error, off };

/// [loader] affinity: a rule, or the cores themselves.
struct core_choice {
  core_rule rule = core_rule::near_gpu;
  std::vector<std::uint32_t> cores{};  ///< empty: `rule` applies

  bool operator==(const core_choice&) const = default;
};

using namespace std::chrono_literals;

#define PENSTOCK_TABLE(type, path, actor, help) struct type {
#define PENSTOCK_KEY(type, name, fallback, limits, use, effect, help) type name = fallback;
#define PENSTOCK_SUBTABLE(type, name) type name;
#define PENSTOCK_KEYS_OF(type, name) type name;
#define PENSTOCK_TABLE_END(type)                \
  bool operator==(const type&) const = default; \
  }                                             \
  ;
#include <penstock/config_keys.def>

/// Reads a config file with its includes, ${...} references and PENSTOCK__TABLE__KEY environment variables.
/// Relative paths become relative to the file that contains them. Throws penstock::error (errc::config) whose
/// message lists every mistake with file, line and column; errc::io if the file cannot be read.
PENSTOCK_API config load_config(const std::filesystem::path& file);

/// Also applies overrides, "key.path=TOML value", as `penstock run --set` takes them.
PENSTOCK_API config load_config(const std::filesystem::path& file, const std::vector<std::string>& overrides);

}  // namespace penstock
