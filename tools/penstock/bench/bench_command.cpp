#include "runtime/base/number.hpp"
#include "runtime/base/units.hpp"
#include "runtime/device/yardstick.hpp"
#include "tools/penstock/bench/bench.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/number_option.hpp"
#include "tools/penstock/output.hpp"
#include "tools/penstock/verb_table.hpp"

#include <nlohmann/json.hpp>

#include <map>

namespace penstock::cli {
namespace {

struct bench_options {
  std::string what;
  std::string device = "auto";
  upload_bench upload;
  transform_bench transform;
  std::string slot_bytes = "19267584";
  std::string fill = "stamp";
  std::string size = "224x224";
  std::string layout = "nchw";
  std::string dtype = "float16";
  std::string seconds = "3s";
  bool json = false;
};

/// "1MiB", or a plain number of bytes.
result<std::uint64_t> bytes_of_option(const std::string& text) {
  if (const auto plain = whole_number<std::uint64_t>(text)) return *plain;
  return parse_bytes(text);
}

template <class T>
result<T> one_of(const std::map<std::string, T>& choices, const std::string& given, std::string_view what) {
  const auto it = choices.find(given);
  if (it != choices.end()) return it->second;
  std::string names;
  for (const auto& [name, value] : choices) names += (names.empty() ? "" : ", ") + name;
  return refuse(errc::usage, "{} '{}': choose one of {}", what, given, names);
}

std::string rate(double bytes_per_second) {
  return fmt::format("{:.2f} GB/s", bytes_per_second / 1e9);
}

void tell_upload(const nlohmann::ordered_json& r) {
  say(fmt::format("device    {}", r["device"]["name"].get<std::string>()));
  say(fmt::format("bare      {}", rate(r["bare"]["bytes_per_second"].get<double>())));
  say(fmt::format("runtime   {}  ({:.0f} batches/s, first batch after {:.3f} s)",
                  rate(r["runtime"]["bytes_per_second"].get<double>()),
                  r["runtime"]["batches_per_second"].get<double>(),
                  r["runtime"]["first_batch_seconds"].get<double>()));
  say(fmt::format("ratio     {:.3f}", r["ratio"].get<double>()));
  for (const auto& [thread, cores] : r["cpu"]["threads"].items())
    say(fmt::format("cpu       {:<18} {:5.1f} %", thread, cores.get<double>() * 100));
  say(fmt::format("cpu       {:<18} {:5.1f} %", "workers, all", r["cpu"]["workers"].get<double>() * 100));
  say(fmt::format("cpu       {:<18} {:5.1f} %", "owner while idle",
                  r["cpu"]["owner_idle"].get<double>() * 100));
}

void tell_transform(const nlohmann::ordered_json& r) {
  say(fmt::format("device    {}", r["device"]["name"].get<std::string>()));
  say(fmt::format("convert   {} read and written", rate(r["convert_bytes_per_second"].get<double>())));
  say(fmt::format("copy      {} read and written", rate(r["copy_bytes_per_second"].get<double>())));
  say(fmt::format("ratio     {:.3f}", r["ratio"].get<double>()));
}

result<void> understand(bench_options& o) {
  const auto given =
      parse_time_option("--seconds", o.seconds, std::chrono::milliseconds(100), std::chrono::minutes(10));
  if (!given) return tl::unexpected(given.error());
  const nanoseconds time = *given;
  o.upload.time = time;
  o.upload.device = o.device;
  o.transform.device = o.device;
  o.transform.time = time;
  const auto bytes = bytes_of_option(o.slot_bytes);
  if (!bytes) return tl::unexpected(bytes.error());
  o.upload.slot_bytes = *bytes;
  const auto fill = one_of<fill_kind>({{"stamp", fill_kind::stamp},
                                       {"memset", fill_kind::memset},
                                       {"memcpy", fill_kind::memcpy},
                                       {"random", fill_kind::random}},
                                      o.fill, "--fill");
  if (!fill) return tl::unexpected(fill.error());
  o.upload.fill = *fill;
  const auto layout = one_of<image_layout>({{"nchw", image_layout::nchw}, {"nhwc", image_layout::nhwc}},
                                           o.layout, "--layout");
  if (!layout) return tl::unexpected(layout.error());
  o.transform.layout = *layout;
  const auto type = one_of<dtype>({{"uint8", dtype::uint8},
                                   {"float16", dtype::float16},
                                   {"bfloat16", dtype::bfloat16},
                                   {"float32", dtype::float32}},
                                  o.dtype, "--dtype");
  if (!type) return tl::unexpected(type.error());
  o.transform.dtype = *type;
  const std::size_t x = std::min(o.size.find('x'), o.size.size() - 1);
  const auto height = whole_number<std::uint32_t>(o.size.substr(0, x));
  const auto width = whole_number<std::uint32_t>(o.size.substr(x + 1));
  if (!height || !width) return refuse(errc::usage, "--size '{}': write it like 224x224", o.size);
  o.transform.height = *height;
  o.transform.width = *width;
  return {};
}

template <class Measure, class Tell>
int run_bench(bench_options& o, Measure measure, Tell tell) {
  if (auto ok = understand(o); !ok) return refuse_with(exit_usage, ok.error(), o.json);
  try {
    const nlohmann::ordered_json report = measure();
    if (o.json) {
      print_json(report);
    } else {
      tell(report);
    }
    return exit_ok;
  } catch (const error& e) {
    return refuse_with(exit_failed, e.as_failure(), o.json);
  }
}

}  // namespace

void add_bench_command(verb_table& verbs) {
  const auto o = std::make_shared<bench_options>();
  CLI::App& verb = verbs.add(
      {"bench",
       verb_group::look,
       "measure uploads and conversion against bare copies",
       "upload: workers fill slots with synthetic samples, and the GPU owner copies them to the device. The "
       "benchmark first measures the bare rate, at which cudaMemcpyAsync alone (memcpy on the host device) "
       "copies the same memory, and then the rate of the whole runtime. The ratio is the runtime's rate divided "
       "by the bare rate; if something else keeps the machine busy during one of the two, it can exceed 1.\n\n"
       "transform: converts photographs (uint8 to the given type and layout, normalised) and compares the "
       "bytes read and written per second with copies within the device.",
       {{"penstock bench upload --workers 8", "19 MB batches, the size of 128 photographs"},
        {"penstock bench upload --slot-bytes 64KiB --slots 64 --buffers 64", "the cost of a small batch"},
        {"penstock bench transform --device cuda --json", "for scripts"}}},
      [o] {
        if (o->what == "upload")
          return run_bench(
              *o, [&] { return bench_upload(o->upload); }, tell_upload);
        return run_bench(
            *o, [&] { return bench_transform(o->transform); }, tell_transform);
      });
  verb.add_option("WHAT", o->what, "what to measure: upload or transform")
      ->required()
      ->check(CLI::IsMember({"upload", "transform"}))
      ->type_name("upload|transform");
  verb.add_option("--device", o->device, "auto, host, cuda, cuda:N or uuid:GPU-...")->type_name("DEVICE");
  verb.add_option("--seconds", o->seconds, "how long to measure each part")
      ->type_name("TIME")
      ->capture_default_str();
  verb.add_flag("--json", o->json, "print the figures as one JSON object");
  const auto number = [&](const char* name, std::uint32_t& value, const char* help, std::uint32_t most) {
    takes_whole_number(verb.add_option(name, value, help), {1, most})->capture_default_str();
  };
  number("--workers", o->upload.workers, "upload: loader workers", 1024);
  verb.add_option("--slot-bytes", o->slot_bytes, "upload: bytes of a batch, such as 19267584 or 1MiB")
      ->type_name("SIZE");
  number("--slots", o->upload.slots, "upload: slots of a worker", 1024);
  number("--buffers", o->upload.buffers, "upload: buffers on the device", 1024);
  verb.add_option("--fill", o->fill, "upload: what a worker does to a slot: stamp, memset, memcpy, random")
      ->type_name("FILL");
  number("--rows", o->transform.rows, "transform: photographs in a batch", 65536);
  verb.add_option("--size", o->size, "transform: size of a photograph")->type_name("HxW");
  verb.add_option("--layout", o->layout, "transform: nchw or nhwc")->type_name("LAYOUT");
  verb.add_option("--dtype", o->dtype, "transform: uint8, float16, bfloat16 or float32")->type_name("TYPE");
}

nlohmann::ordered_json bench_transform(const transform_bench& what) {
  const device::image_settings image{what.layout, what.dtype, {0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
  const auto rates = value_or_throw(
      device::measure_conversion(what.device, {what.rows, what.height, what.width}, image, what.time));
  return {{"schema", "penstock.bench.transform/1"},
          {"device", {{"name", rates.device}}},
          {"rows", what.rows},
          {"height", what.height},
          {"width", what.width},
          {"layout", what.layout == image_layout::nchw ? "nchw" : "nhwc"},
          {"dtype", name_of(what.dtype)},
          {"convert_bytes_per_second", rates.convert_bytes_per_second},
          {"copy_bytes_per_second", rates.copy_bytes_per_second},
          {"ratio", rates.convert_bytes_per_second / rates.copy_bytes_per_second}};
}

}  // namespace penstock::cli
