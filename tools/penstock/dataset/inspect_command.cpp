// inspect: reports the contents of a dataset.
#include "runtime/base/counted.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/dataset/mixture/mixture.hpp"
#include "runtime/process/process_facts.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/config_source.hpp"
#include "tools/penstock/dataset/index_display.hpp"
#include "tools/penstock/dataset/inspection.hpp"
#include "tools/penstock/output.hpp"
#include "tools/penstock/text_table.hpp"
#include "tools/penstock/verb_table.hpp"

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <cmath>

namespace penstock::cli {
namespace {

using inspected::inspection;
using inspected::spread;
using json = nlohmann::ordered_json;

constexpr std::size_t rows_shown = 20;

struct inspect_options {
  config_source source;
  bool json = false;
  bool all = false;
};

json as_json(const spread& s) {
  return {{"min", s.least}, {"median", s.median}, {"max", s.most}};
}

json as_json(const inspection& i) {
  json out{{"schema", "penstock.inspect/1"},
           {"type", i.type},
           {"path", i.path.empty() ? json() : json(printable(i.path))},
           {"fingerprint", i.fingerprint},
           {"samples", i.samples},
           {"bytes", i.bytes},
           {"classes", json::array()},
           {"files", json::array()},
           {"element", i.element.empty() ? json() : json(i.element)},
           {"file_bytes", i.file_bytes ? as_json(*i.file_bytes) : json()},
           {"pictures", nullptr},
           {"values", nullptr},
           {"suspicious", json::array()},
           {"notices", i.notices}};
  for (const auto& c : i.classes)
    out["classes"].push_back({{"name", printable(c.name)}, {"samples", c.samples}, {"bytes", c.bytes}});
  for (const auto& f : i.files)
    out["files"].push_back({{"name", printable(f.name)}, {"samples", f.samples}, {"bytes", f.bytes}});
  if (i.pictures) {
    const auto& p = *i.pictures;
    out["pictures"] = {{"formats", p.formats},
                       {"turned", p.turned},
                       {"smaller_than_size", p.smaller_than_size},
                       {"width", as_json(p.width)},
                       {"height", as_json(p.height)}};
  }
  if (i.values) {
    const auto& v = *i.values;
    out["values"] = {{"samples", v.samples},
                     {"min", v.least},
                     {"max", v.most},
                     {"mean", v.mean},
                     {"not_finite", v.not_finite}};
  }
  for (const auto& s : i.suspicious) {
    out["suspicious"].push_back(
        {{"sample", s.sample}, {"path", printable(s.path)}, {"reason", printable(s.reason)}});
  }
  return out;
}

void print_table(const std::vector<table_column>& columns, std::vector<std::vector<std::string>> rows,
                 bool all) {
  const std::size_t total = rows.size();
  if (!all && total > rows_shown) rows.resize(rows_shown);
  print_raw(text_table(columns, rows, terminal_width(STDOUT_FILENO)));
  if (rows.size() < total) print(fmt::format("... and {} more (--all)", total - rows.size()));
}

void print_report(const inspection& i, bool all) {
  print(fmt::format("{}{}: {}{}", i.type, i.path.empty() ? "" : " " + printable(i.path),
                    counted(i.samples, "sample", "samples"),
                    i.bytes > 0 ? ", " + bytes_for_people(i.bytes) : std::string()));
  print("fingerprint " + i.fingerprint);
  if (!i.element.empty()) print("samples of " + i.element);
  if (i.pictures) {
    const auto& p = *i.pictures;
    std::string formats;
    for (const auto& [name, count] : p.formats)
      formats += fmt::format("{}{} {}", formats.empty() ? "" : ", ", count, name);
    print(fmt::format("{}; width {} to {} (median {}), height {} to {} (median {})",
                      formats.empty() ? "no readable picture" : formats, p.width.least, p.width.most,
                      p.width.median, p.height.least, p.height.most, p.height.median));
    if (p.turned > 0) print(fmt::format("{} turned by their EXIF orientation", p.turned));
    if (p.smaller_than_size > 0)
      print(fmt::format("{} smaller than [image] size: they will be enlarged", p.smaller_than_size));
  }
  if (i.values) {
    const auto& v = *i.values;
    const std::string range = std::isnan(v.mean) ? "no finite values" : fmt::format("values from {:g} to {:g}, mean {:g}", v.least, v.most, v.mean);
    print(fmt::format("{} ({} checked)", range, counted(v.samples, "sample", "samples")));
  }
  const auto counts = [&](const char* title, const auto& list) {
    std::vector<std::vector<std::string>> rows;
    for (const auto& entry : list)
      rows.push_back({printable(entry.name), std::to_string(entry.samples), bytes_for_people(entry.bytes)});
    print("");
    print_table(
        {{title, column_side::left, true}, {"SAMPLES", column_side::right}, {"SIZE", column_side::right}},
        std::move(rows), all);
  };
  if (!i.classes.empty()) counts("CLASS", i.classes);
  if (!i.files.empty()) counts("FILE", i.files);
  for (const std::string& notice : i.notices) print("notice: " + printable(notice));
  print("");
  if (i.suspicious.empty()) {
    print("nothing suspicious");
    return;
  }
  std::vector<std::vector<std::string>> rows;
  for (const auto& s : i.suspicious)
    rows.push_back({std::to_string(s.sample), printable(s.path), printable(s.reason)});
  print_table({{"SAMPLE", column_side::right}, {"SUSPICIOUS"}, {"WHY", column_side::left, true}},
              std::move(rows), all);
  print(fmt::format("\n{} suspicious", counted(i.suspicious.size(), "sample is", "samples are")));
}

/// Inspects each dataset of a mixture separately.
int look_at_mixture(const inspect_options& o, const config& settings, const inspected::progress& told) {
  json all{{"schema", "penstock.inspect/1"}, {"type", "mixture"}, {"datasets", json::array()}};
  for (std::size_t i = 0; i < settings.datasets.size(); ++i) {
    const mixed_dataset_config& one = settings.datasets[i];
    const config part = settings_of_part(settings, i);
    if (!o.json) index_with_bar(part, notices_told::by_caller);
    auto found = inspected::look_at(part, process::usable_cores(), told);
    if (!found) {
      found.error().message = fmt::format("the dataset '{}': {}", one.name, found.error().message);
      return refuse_with(exit_failed, found.error(), o.json);
    }
    if (o.json) {
      json facts{{"name", one.name}, {"weight", one.weight}};
      facts.update(as_json(*found));
      all["datasets"].push_back(std::move(facts));
    } else {
      print(fmt::format("{}{}, weight {}:", i == 0 ? "" : "\n", one.name, fmt::join(one.weight, ", ")));
      print_report(*found, o.all);
    }
  }
  if (o.json) print_json(all);
  return exit_ok;
}

int look(const inspect_options& o) {
  auto loaded = load(o.source);
  if (!loaded) return tell_rejection(loaded.error(), o.json);
  const bool shows_progress = !o.json && is_terminal(STDERR_FILENO);
  const auto told = [&](std::uint64_t done, std::uint64_t all) {
    if (shows_progress) say_raw(fmt::format("\r{} of {}{}", done, all, done == all ? "\r\x1b[K" : ""));
  };
  if (!loaded->values.datasets.empty()) {
    if (!o.json) tell_warnings(*loaded);
    return look_at_mixture(o, loaded->values, told);
  }
  if (!o.json) index_with_bar(loaded->values, notices_told::by_caller);
  const auto found = inspected::look_at(loaded->values, process::usable_cores(), told);
  if (!found) return refuse_with(exit_failed, found.error(), o.json);
  if (o.json) {
    print_json(as_json(*found));
  } else {
    tell_warnings(*loaded);
    print_report(*found, o.all);
  }
  return exit_ok;
}

}  // namespace

void add_inspect_command(verb_table& verbs) {
  const auto o = std::make_shared<inspect_options>();
  CLI::App& verb =
      verbs.add({"inspect",
                 verb_group::look,
                 "report classes, sizes and suspicious files of a dataset",
                 "For an image folder, it reads the beginning and the end of every file, but no pixels. For other types, it loads up to "
                 "4096 evenly spread samples; the worker program loads samples of a custom dataset. A file is suspicious if it is "
                 "unreadable or truncated, is not a picture, "
                 "has a different format than its name says, or has the same bytes as another file. A sample is "
                 "suspicious if it cannot be loaded, kills its worker, or has only zeros or values that are "
                 "not finite. Writes nothing but the index of tar shards.",
                 {{"penstock inspect photos.toml", "as a table"},
                  {"penstock inspect photos.toml --json | jq '.suspicious[].path'",
                   "print the names of suspicious files"}}},
                [o] { return look(*o); });
  add_stream_options(verb, o->source);
  verb.add_flag("--all", o->all, "list every class and every suspicious file, not only the first 20");
  verb.add_flag("--json", o->json, "one JSON object on stdout");
}

}  // namespace penstock::cli
