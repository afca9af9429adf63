#include "actors/loader/by_hand.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/base/layout.hpp"
#include "runtime/base/number.hpp"
#include "runtime/base/sample_name.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/thrown.hpp"
#include "runtime/base/xxh3.hpp"
#include "runtime/config/load.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace penstock::loader {
namespace {

using child::complain;

constexpr std::size_t values_shown_max = 8;

// ---- arguments

result<void> take_ranges(by_hand_request& into, std::string_view list) {
  for (std::string_view rest = list;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view one = rest.substr(0, comma);
    const std::size_t dash = one.find('-');
    const auto first = whole_number<std::uint64_t>(one.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : whole_number<std::uint64_t>(one.substr(dash + 1));
    if (!first || !last) {
      return refuse(errc::usage, "--load {}: '{}' is not a sample index; write --load 7 or --load 3,7,10-20",
                    printable(list), printable(one));
    }
    if (*last < *first) {
      return refuse(errc::usage, "--load {}: the range {} ends before it begins", printable(list), one);
    }
    into.samples.push_back({*first, *last});
    if (comma == std::string_view::npos) return {};
    rest.remove_prefix(comma + 1);
  }
}

result<void> take_epoch(by_hand_request& into, std::string_view text) {
  const auto epoch = whole_number<std::uint64_t>(text);
  if (!epoch)
    return refuse(errc::usage, "--epoch {}: must be a whole number, counted from 0", printable(text));
  into.epoch = *epoch;
  return {};
}

// ---- loading

std::string shape_text(const tensor_spec& spec) {
  return fmt::format("{} [{}]", name_of(spec.type), fmt::join(spec.shape, ", "));
}

template <class T>
std::string values_as(std::span<const std::byte> bytes) {
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    text += fmt::format("{}{}", text.empty() ? "" : ", ", value);
  }
  return text;
}

/// The values themselves, if they are few and of a printable type.
std::string values_text(dtype type, std::span<const std::byte> bytes) {
  if (bytes.size() > values_shown_max * size_of(type)) return {};
  switch (type) {
    case dtype::uint8: return values_as<std::uint8_t>(bytes);
    case dtype::int8: return values_as<std::int8_t>(bytes);
    case dtype::uint16: return values_as<std::uint16_t>(bytes);
    case dtype::int16: return values_as<std::int16_t>(bytes);
    case dtype::uint32: return values_as<std::uint32_t>(bytes);
    case dtype::int32: return values_as<std::int32_t>(bytes);
    case dtype::uint64: return values_as<std::uint64_t>(bytes);
    case dtype::int64: return values_as<std::int64_t>(bytes);
    case dtype::float32: return values_as<float>(bytes);
    case dtype::float64: return values_as<double>(bytes);
    case dtype::float16:
    case dtype::bfloat16: return {};
  }
  return {};
}

/// The message of the exception that user code threw. Call in a catch block.
std::string thrown() {
  try {
    throw;
  } catch (const transient_error& e) {
    return fmt::format("{} (a transient_error: a session would retry three times)", e.what());
  } catch (...) {
    return thrown_text();
  }
}

/// Runs the dataset on the main thread. Each tensor of a sample is a separate allocation of exactly the
/// described size, so that a sanitizer catches the first byte beyond it.
class sample_loader {
 public:
  sample_loader(Dataset& dataset, dataset_description described, const config& settings)
      : dataset_(dataset), described_(std::move(described)), settings_(settings) {
    for (const tensor_spec& spec : described_.tensors) name_width_ = std::max(name_width_, spec.name.size());
  }

  void tell_description() const {
    fmt::print("dataset '{}': {}, {}fingerprint '{}'\n", printable(described_.type), counted(described_.samples, "sample"),
               settings_.dataset.type == dataset_type::custom ? "its author's " : "", printable(described_.fingerprint));
    for (const tensor_spec& spec : described_.tensors) {
      const std::string_view role = spec.role == tensor_role::image    ? ", an image"
                                    : spec.role == tensor_role::record ? ", a record"
                                                                       : "";
      fmt::print("  {:<{}}  {}{}{}\n", printable(spec.name), name_width_, shape_text(spec), role,
                 spec.length == length_rule::exact ? "" : ", of variable length");
    }
  }

  /// Loads and prints a sample. False if it could not be loaded.
  bool load(std::uint64_t index, std::uint64_t epoch) {
    std::string name;
    try {
      name = dataset_.name_of(index);
    } catch (...) {
      fmt::print("sample {}: name_of failed: {}\n", index, printable(thrown()));
      return false;
    }
    // Print it before loading: a crash must not lose the name.
    fmt::print("{}, epoch {}\n", sample_for_people(index, printable(name)), epoch);
    std::fflush(stdout);
    std::vector<std::vector<std::byte>> memory;
    std::vector<std::span<std::byte>> tensors;
    std::vector<sample_length> lengths;
    for (const tensor_spec& spec : described_.tensors) {
      // A moved vector keeps its memory: the spans stay valid.
      tensors.emplace_back(memory.emplace_back(bytes_of(spec)));
      const std::uint64_t max = spec.length == length_rule::exact ? 0 : spec.shape.front();
      lengths.push_back({max, max});
    }
    random_source random(settings_.sampler.seed, epoch, index);
    const auto begin = std::chrono::steady_clock::now();
    try {
      dataset_.load({index, epoch, 1, random}, sample_slot(tensors, lengths, described_.tensors));
    } catch (...) {
      fmt::print("  failed: {}\n", printable(thrown()));
      return false;
    }
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    for (std::size_t t = 0; t < tensors.size(); ++t)
      tell_tensor(described_.tensors[t], tensors[t], lengths[t]);
    fmt::print("  loaded in {:.3f} ms\n", took.count());
    return true;
  }

 private:
  void tell_tensor(const tensor_spec& spec, std::span<std::byte> bytes, const sample_length& length) const {
    std::string used;
    if (length.max > 0) {
      const std::size_t end = length.entries * (bytes.size() / length.max);
      std::ranges::fill(bytes.subspan(end), std::byte{0});
      used = fmt::format(", {} used", length.entries);
    }
    const std::string values = values_text(spec.type, bytes);
    fmt::print("  {:<{}}  {}{}  digest {:016x}{}{}\n", printable(spec.name), name_width_, shape_text(spec),
               used, xxh3_of(bytes), values.empty() ? "" : "  = ", values);
  }

  Dataset& dataset_;
  const dataset_description described_;
  const config& settings_;
  std::size_t name_width_ = 0;
};

result<config> config_of(const by_hand_request& request) {
  config_file::source_request from;
  from.file = request.config;
  for (const std::string& one : request.sets) from.overrides.push_back({one});
  from.environment = config_file::process_environment();
  std::error_code failed;
  from.working_folder = std::filesystem::current_path(failed);
  if (failed) return refuse_os(errc::io, failed.value(), "the current folder is gone");
  auto loaded = config_file::load(from);
  if (!loaded) return tl::unexpected(config_file::as_failure(loaded.error()));
  return std::move(loaded->values);
}

int load_samples(Dataset& dataset, const config& settings, const by_hand_request& request,
                 std::string_view program) {
  std::string step = "describing the dataset";
  dataset_description described;
  try {
    described = dataset.describe();
    if (auto layout = lay_out(described.tensors, 1); !layout) throw error(layout.error());
    sample_loader here(dataset, described, settings);
    here.tell_description();
    for (const index_range& range : request.samples) {
      if (range.last < described.samples) continue;
      complain(program, fmt::format("--load {}: the dataset has {}, counted from 0", range.last,
                                    counted(described.samples, "sample")));
      return child::exit_usage;
    }
    step = "setting up the dataset";
    dataset.setup({0, 1, settings.sampler.seed});
    if (request.setup_only) {
      fmt::print("set up; no sample was loaded\n");
      return exit_codes::finished;
    }
    std::uint64_t failed = 0;
    for (const index_range& range : request.samples) {
      for (std::uint64_t index = range.first;; ++index) {
        failed += here.load(index, request.epoch) ? 0 : 1;
        if (index == range.last) break;
      }
    }
    if (failed == 0) return exit_codes::finished;
    complain(program, fmt::format("{} sample{} failed", failed, failed == 1 ? "" : "s"));
    return exit_codes::failed;
  } catch (...) {
    complain(program, with_cause(step, thrown()));
    return exit_codes::configuration;
  }
}

int run(const dataset_factory& make, const by_hand_request& request, const std::string& program) {
  const auto settings = config_of(request);
  if (!settings) {
    fmt::print(stderr, "{}\n", settings.error().message);  // several lines, formatted for people
    return exit_codes::configuration;
  }
  // Set the environment that a session would give the worker.
  for (const auto& [name, value] : settings->loader.env) ::setenv(name.c_str(), value.c_str(), 1);
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
  std::unique_ptr<Dataset> dataset;
  try {
    dataset = make(*settings);
    if (!dataset) throw error({errc::dataset, "the worker program's factory returned no dataset", 0});
  } catch (...) {
    complain(program, with_cause("opening the dataset", thrown()));
    return exit_codes::configuration;
  }
  return load_samples(*dataset, *settings, request, program);
}

}  // namespace

result<by_hand_request> parse_by_hand(const std::vector<std::string>& arguments) {
  by_hand_request made;
  const auto into = [](std::string& text) {
    return [&text](const std::string& value) -> result<void> {
      text = value;
      return {};
    };
  };
  const auto asked = child::parse_by_hand(
      arguments, {{"--help", &made.help},
                  {"--setup-only", &made.setup_only},
                  {"--config", into(made.config)},
                  {"--set", [&](const std::string& value) { return into(made.sets.emplace_back())(value); }},
                  {"--load", [&](const std::string& value) { return take_ranges(made, value); }},
                  {"--epoch", [&](const std::string& value) { return take_epoch(made, value); }}});
  if (!asked) return tl::unexpected(asked.error());
  made.asked = *asked;
  if (!made.asked || made.help) return made;
  if (made.config.empty()) return refuse(errc::usage, "which config? Write --config FILE");
  if (made.samples.empty() && !made.setup_only)
    return refuse(errc::usage, "which samples? Write --load 7, --load 3,7,10-20, or --setup-only for none");
  if (!made.samples.empty() && made.setup_only)
    return refuse(errc::usage, "give either --load or --setup-only, not both");
  return made;
}

std::string by_hand_help(std::string_view program) {
  return fmt::format(
      R"(This is a penstock loader worker. A penstock session starts it; see `penstock help run`.

Started by hand, it loads samples in this process, for a debugger, a sanitizer or a profiler:

  {0} --config FILE --load 7           one sample
  {0} --config FILE --load 3,7,10-20   several, in this order
  {0} --config FILE --setup-only       describe() and setup() alone

For each sample: its name, each tensor's dtype, shape and digest, and its values if there are few.
A sample has the same bytes as in a session, before collate(), which is not called.

  --config FILE      the config file
  --load LIST        sample indices and ranges, counted from 0
  --setup-only       load nothing
  --epoch N          as in epoch N, counted from 0 (default: 0)
  --set KEY=VALUE    override one key: image.augment=none (may be repeated)
  --help             this text

Arguments before the first of these are the program's own.
Exit codes: 0 all samples were loaded, 1 one failed, 2 wrong usage, 78 config or dataset unusable.
)",
      program);
}

int run_by_hand(const dataset_factory& make) {
  return child::start_by_hand(
      parse_by_hand, by_hand_help,
      "This is a penstock loader worker. A penstock session starts it; see `penstock help run`.\n"
      "To load samples without a session, in a debugger for example: {} --config FILE --load 7\n",
      [&make](const by_hand_request& request, const std::string& program) {
        return run(make, request, program);
      });
}

}  // namespace penstock::loader
