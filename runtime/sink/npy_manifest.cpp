#include "runtime/sink/npy_manifest.hpp"

#include "runtime/base/dataset_type.hpp"
#include "runtime/base/replace_file.hpp"
#include "runtime/base/sampler_kind.hpp"
#include "runtime/base/stream_shape.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/xxh3.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <system_error>

namespace penstock::sink {
namespace {

namespace fs = std::filesystem;

/// Returns a quoted JSON string.
std::string in_quotes(std::string_view raw) {
  std::string out = "\"";
  for (const char c : printable(raw)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

/// A digest of all settings that determine the pixels. Numbers are hashed as text, in which each value
/// has exactly one spelling.
std::string digest_of_transforms(const config& c) {
  const image_config& i = c.image;
  std::string facts =
      fmt::format("{} {} {} {} {} {} {} {}; {} {} {} {}", fmt::join(i.size, ","), static_cast<int>(i.augment),
                  fmt::join(i.scale, ","), fmt::join(i.ratio, ","), i.flip, i.crop_fraction,
                  static_cast<int>(i.orientation), i.max_pixels, static_cast<int>(c.gpu.layout),
                  name_of(c.gpu.dtype), fmt::join(c.gpu.mean, ","), fmt::join(c.gpu.std, ","));
  if (i.decoder != decoder_rule::cpu)
    facts += fmt::format("; {} {}", static_cast<int>(i.decoder), i.gpu_share);
  return fmt::format("{:016x}", xxh3_of(std::as_bytes(std::span(facts))));
}

/// "web 0.7 tokens /data/web, books 0.3 tokens /data/books weighted /data/weights.npy".
std::string paths_of_mixture(const config& c) {
  std::vector<std::string> all;
  for (const mixed_dataset_config& one : c.datasets) {
    all.push_back(fmt::format("{} {} {} {}", one.name, fmt::join(one.weight, "/"), name_of(one.dataset.type),
                              one.dataset.path));
    if (one.sampler) all.back() += fmt::format(" {}", name_of(*one.sampler));
    for (const std::string& file : {one.sample_weights, one.subset})
      if (!file.empty()) all.back() += " " + file;
  }
  return fmt::format("{}, epochs of {}", fmt::join(all, ", "), c.sampler.epoch_samples);
}

std::string stream_part(const config& c) {
  const sampler_config& s = c.sampler;
  std::string text = "{\n  \"format\": \"penstock.npy/1\",\n";
  const auto add = [&](std::string_view name, const std::string& value) {
    text += fmt::format("  \"{}\": {},\n", name, value);
  };
  if (c.datasets.empty()) {
    add("dataset", in_quotes(name_of(c.dataset.type)));
    add("path", in_quotes(c.dataset.path));
  } else {
    add("dataset", in_quotes("mixture"));
    add("path", in_quotes(paths_of_mixture(c)));
  }
  add("seed", fmt::format("{}", s.seed));
  const bool is_sequential = s.kind == sampler_kind::shuffle && !s.shuffle;  // both spellings are the same order
  add("kind", in_quotes(name_of(is_sequential ? sampler_kind::sequential : s.kind)));
  add("shuffle", fmt::format("{}", s.shuffle && s.kind != sampler_kind::sequential));
  if (s.kind == sampler_kind::weighted) add("weights", in_quotes(s.weights));
  if (s.kind == sampler_kind::weighted || s.kind == sampler_kind::balanced) add("epoch_samples", fmt::format("{}", s.epoch_samples));
  if (s.kind == sampler_kind::subset) add("subset", in_quotes(s.subset));
  const auto has_window = [](const mixed_dataset_config& one) { return one.sampler == sampler_kind::window; };
  if (s.kind == sampler_kind::window || std::ranges::any_of(c.datasets, has_window)) {
    add("window", fmt::format("{}", s.window));
    add("window_shards", fmt::format("{}", s.window_shards));
  }
  add("batch_size", fmt::format("{}", s.batch_size));
  add("drop_last", fmt::format("{}", s.drop_last));
  add("rank", fmt::format("{}", s.rank.value_or(0)));
  add("world_size", fmt::format("{}", s.world_size));
  if (s.world_size > 1) add("uneven", in_quotes(name_of(s.uneven)));
  add("transforms", in_quotes(digest_of_transforms(c)));
  return text;
}

/// The shape of a sample as JSON. Null for an axis whose size varies
/// from batch to batch; the tensor then has a NAME_length next to it.
std::string sample_shape(const tensor_view& t, const std::set<std::string, std::less<>>& names) {
  std::string shape;
  const bool varies = names.contains(std::string(t.name) + "_length");
  for (std::size_t axis = 1; axis < t.shape.size(); ++axis) {
    shape += shape.empty() ? "" : ", ";
    shape += axis == 1 && varies ? "null" : fmt::format("{}", t.shape[axis]);
  }
  return "[" + shape + "]";
}

std::string line_of(std::string_view name, std::string_view role, dtype type, const std::string& shape) {
  return fmt::format("    {{\"name\": {}, \"role\": \"{}\", \"dtype\": \"{}\", \"shape\": {}}}",
                     in_quotes(name), role, name_of(type), shape);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string trimmed(std::string line) {
  if (line.ends_with(',')) line.pop_back();
  line.erase(0, line.find_first_not_of(' '));
  return line;
}

/// Compares only as many lines as `wanted` has.
result<void> check_same(const std::string& there, const std::string& wanted, const fs::path& folder) {
  const auto old_lines = lines_of(there);
  auto new_lines = lines_of(wanted);
  // Version 0.1 wrote no `kind`.
  const auto is_kind = [](const std::string& line) { return line.starts_with("  \"kind\":"); };
  if (std::ranges::none_of(old_lines, is_kind)) std::erase_if(new_lines, is_kind);
  for (std::size_t i = 0; i < new_lines.size(); ++i) {
    if (i < old_lines.size() && old_lines[i] == new_lines[i]) continue;
    return refuse(errc::sink,
                  "'{}' holds batches of another run: its {} has {}, but this run has {}; choose another --out, or "
                  "remove the folder",
                  printable(folder.native()), manifest_name,
                  i < old_lines.size() ? printable(trimmed(old_lines[i])) : "no such line",
                  trimmed(new_lines[i]));
  }
  return {};
}

std::optional<std::string> manifest_in(const fs::path& folder) {
  std::ifstream in(folder / manifest_name, std::ios::binary);
  if (!in) return std::nullopt;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

bool is_of_a_batch(const std::string& file) {
  return file.starts_with('e') && file.find("-b") != std::string::npos && file.ends_with(".npy");
}

}  // namespace

std::string npy_manifest(const config& settings, std::span<const manifest_tensor> tensors) {
  std::set<std::string, std::less<>> names;
  for (const manifest_tensor& t : tensors) names.emplace(t.tensor.name);
  std::string text = stream_part(settings) + "  \"files\": \"e{epoch}-b{batch, six digits}.{name}.npy\",\n" +
                     "  \"tensors\": [\n";
  for (const manifest_tensor& t : tensors) {
    text +=
        line_of(t.tensor.name, t.record ? "record" : "tensor", t.tensor.type, sample_shape(t.tensor, names));
    text += ",\n";
  }
  return text + line_of(index_name, "index", dtype::int64, "[]") + "\n  ]\n}\n";
}

result<void> claim_npy_folder(const fs::path& folder, const config& settings) {
  const std::string shown = printable(folder.native());
  std::error_code status;
  fs::create_directories(folder, status);
  if (status) return refuse_os(errc::sink, status.value(), fmt::format("making the folder '{}'", shown));
  if (const auto there = manifest_in(folder)) return check_same(*there, stream_part(settings), folder);
  for (const auto& entry : fs::directory_iterator(folder, status)) {
    if (!is_of_a_batch(entry.path().filename().native())) continue;
    return refuse(errc::sink,
                  "'{}' holds batches ({}) but no {} that names their run; choose another --out, or remove "
                  "the folder",
                  shown, printable(entry.path().filename().native()), manifest_name);
  }
  if (status) return refuse_os(errc::sink, status.value(), fmt::format("reading the folder '{}'", shown));
  return {};
}

result<void> write_npy_manifest(const fs::path& folder, const config& settings,
                                std::span<const manifest_tensor> tensors) {
  std::set<std::string, std::less<>> names{std::string(index_name)};
  for (const manifest_tensor& t : tensors) {
    if (names.emplace(t.tensor.name).second) continue;
    return refuse(
        errc::sink,
        "the dataset has a {} called '{}', which is also the name of {}: both would be e0-b000000.{}.npy; "
        "rename it in the dataset, or use another --sink",
        t.record ? "record" : "tensor", printable(t.tensor.name),
        t.tensor.name == index_name ? "the file of sample indices" : "a tensor", printable(t.tensor.name));
  }
  const std::string wanted = npy_manifest(settings, tensors);
  if (const auto there = manifest_in(folder)) return check_same(*there, wanted, folder);
  auto written = replace_file((folder / manifest_name).native(), wanted);
  if (!written) written.error().code = errc::sink;
  return written;
}

}  // namespace penstock::sink
