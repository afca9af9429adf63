// doctor: checks machine, build and job, and prints a table with remedies.
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/config_source.hpp"
#include "tools/penstock/doctor/checks.hpp"
#include "tools/penstock/doctor/gather.hpp"
#include "tools/penstock/host/host_options.hpp"
#include "tools/penstock/launch/launch_folder.hpp"
#include "tools/penstock/output.hpp"
#include "tools/penstock/text_table.hpp"
#include "tools/penstock/verb_table.hpp"

#include <nlohmann/json.hpp>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>

namespace penstock::cli {
namespace {

using doctor::facts;
using doctor::layer;
using doctor::row;
using doctor::status;
using json = nlohmann::ordered_json;

constexpr std::array layers{layer::gpu, layer::machine, layer::loader, layer::data};
constexpr std::array statuses{status::fail, status::warn, status::ok, status::info, status::skip};

struct doctor_options {
  config_source source;
  bool json = false;
  bool cpu_only = false;
  bool deep = false;
  bool isolate = false;
  bool load_only = false;
  std::string root = "/";
  std::string probe_timeout = "30s";
  doctor::hosts_request host;
  std::vector<std::string> data;
  dataset_program_option program;
};

// ---- printing

std::size_t count_of(const std::vector<row>& rows, status s) {
  return static_cast<std::size_t>(std::ranges::count(rows, s, &row::is));
}

json or_null(const std::string& text) {
  return text.empty() ? json() : json(text);
}

json as_json(const facts& f, const std::vector<row>& rows, const doctor_options& o) {
  json out{{"schema", "penstock.doctor/1"},
           {"ok", count_of(rows, status::fail) == 0},
           {"root", o.root},
           {"config", or_null(o.source.file)},
           {"device", f.job.device},
           {"verdict", doctor::summary(rows)}};
  for (const status s : statuses) out["counts"][std::string(name_of(s))] = count_of(rows, s);
  for (const layer l : layers) out["layers"][std::string(name_of(l))] = name_of(worst_of(rows, l));
  out["results"] = json::array();
  for (const row& r : rows) {
    json one{{"id", r.of->id},
             {"layer", name_of(r.of->belongs_to)},
             {"status", name_of(r.is)},
             {"observed", or_null(printable(r.observed))},
             {"expected", or_null(r.expected)},
             {"remedy", or_null(r.remedy)}};
    if (r.is == status::skip) one["why"] = r.why;
    out["results"].push_back(std::move(one));
  }
  if (f.isolation) {
    out["isolation"] = json::array();
    for (const auto& s : *f.isolation) {
      out["isolation"].push_back({{"step", s.name},
                                  {"status", !s.tried   ? "skip"
                                             : s.passed ? "ok"
                                                        : "fail"},
                                  {"told", or_null(printable(s.told))}});
    }
  }
  return out;
}

std::string painted(status s, std::string_view text) {
  static const bool colours = colours_on(STDOUT_FILENO);
  if (!colours) return std::string(text);
  switch (s) {
    case status::fail: return styled(style::red, text);
    case status::warn: return styled(style::yellow, text);
    case status::ok: return styled(style::green, text);
    case status::info:
    case status::skip: break;
  }
  return styled(style::faint, text);
}

constexpr std::size_t id_columns = 20;
constexpr std::size_t text_begins = 6 + id_columns + 2;

/// Wraps text to fit after the first two columns.
std::string folded(std::string_view text, std::size_t width) {
  const std::size_t room = std::max<std::size_t>(width > text_begins ? width - text_begins : 0, 24);
  std::string out;
  std::string line;
  std::istringstream words{std::string(text)};
  for (std::string word; words >> word;) {
    if (!line.empty() && columns_of(line) + 1 + columns_of(word) > room) {
      out += line + "\n" + std::string(text_begins, ' ');
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return out + line;
}

void print_row(status s, std::string_view id, std::string_view text, std::size_t width) {
  print(painted(s, padded(name_of(s), 4)) + "  " + padded(id, std::max(id_columns, columns_of(id))) + "  " +
        folded(text, width));
}

void print_remedy(const std::string& text, std::size_t width) {
  print(std::string(text_begins, ' ') + folded("-> " + text, width));
}

void print_report(const facts& f, const std::vector<row>& rows) {
  constexpr std::size_t usual_width = 80;  // lines are wrapped here, never cut
  const std::size_t terminal = terminal_width(STDOUT_FILENO);
  const std::size_t width = terminal > 0 ? terminal : usual_width;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const row& r = rows[i];
    if (r.is != status::skip) {
      print_row(r.is, r.of->id, printable(r.observed), width);
      if ((r.is == status::fail || r.is == status::warn) && !r.remedy.empty()) print_remedy(r.remedy, width);
      continue;
    }
    // Adjacent rows that are skipped for the same reason share a line.
    std::size_t last = i;
    while (last + 1 < rows.size() && rows[last + 1].is == status::skip && rows[last + 1].why == r.why) ++last;
    const bool alone = last == i;
    print_row(status::skip, alone ? std::string(r.of->id) : fmt::format("{} checks", last - i + 1),
              printable(alone ? r.why : fmt::format("{} to {}: {}", r.of->id, rows[last].of->id, r.why)),
              width);
    i = last;
  }
  if (f.isolation) {
    print("");
    for (const auto& s : *f.isolation) {
      const status is = !s.tried ? status::skip : s.passed ? status::ok : status::fail;
      print_row(is, s.name, printable(s.told), width);
    }
  }
  std::string counts;
  for (const status s : statuses) {
    if (const auto n = count_of(rows, s); n > 0)
      counts += (counts.empty() ? "" : ", ") + painted(s, fmt::format("{} {}", n, name_of(s)));
  }
  print(fmt::format("\n{}: {}", doctor::summary(rows), counts));
}

// ---- gathering

bool cuda_is_usable(const facts& f) {
  return f.job.demand != doctor::gpu_demand::none && f.build.cuda && f.gpu.cuda.init_code == 0 &&
         !f.gpu.cuda.devices.empty();
}

/// Why --deep does not apply; empty if it does.
std::string no_deep(const facts& f, const doctor_options& o) {
  if (o.root != "/") return "not with --root";
  if (!f.build.cuda) return "this build has no CUDA device (built without nvcc)";
  if (!cuda_is_usable(f)) return "CUDA did not initialise (see gpu.cuinit)";
  if (f.job.memory_need && !arena::check_memory(*f.job.memory_need, f.machine.memory))
    return "not enough host memory (see memory.arena)";
  return {};
}

void go_deep(const config& settings, const doctor_options& o, facts& to) {
  if (const std::string why = no_deep(to, o); !why.empty()) {
    to.deep.emplace().child.trouble = why;
    return;
  }
  const bool known = to.job.slot_bytes > 0;
  to.deep = doctor::go_deep(to.job.device, settings, known ? to.job.workers : 1, to.job.slot_bytes);
}

void isolate(const config& settings, const doctor_options& o, facts& to) {
  doctor::isolation_request request;
  request.file = std::filesystem::absolute(o.source.file);
  request.sets = o.source.sets;
  if (o.source.workers) request.sets.push_back("loader.workers=" + *o.source.workers);
  if (o.source.device) request.sets.push_back("gpu.device=" + *o.source.device);
  request.workers = to.job.workers;
  request.why_no_gpu = to.job.why_no_gpu.empty() ? no_deep(to, o) : to.job.why_no_gpu;
  request.gpu = request.why_no_gpu.empty();
  request.custom_dataset = settings.dataset.type == dataset_type::custom;
  if (to.deep) request.deep = *to.deep;
  const std::string& device = to.job.device;
  if (device.starts_with("cuda:")) request.ordinal = std::atoi(device.c_str() + 5);
  for (const auto& d : to.gpu.cuda.devices)
    if (device.starts_with("uuid:") && d.uuid.starts_with(device.substr(5))) request.ordinal = d.ordinal;
  to.isolation = doctor::isolate(request);
}

int report(const facts& found, const doctor_options& o) {
  const std::vector<row> rows = doctor::examine(found);
  if (o.json) {
    print_json(as_json(found, rows, o));
  } else {
    print_report(found, rows);
  }
  return count_of(rows, status::fail) > 0 ? exit_not_met : exit_ok;
}

/// --host: checks only whether this machine and the one at that address can work together.
int examine_host(const doctor_options& o, std::chrono::milliseconds deadline) {
  if (!o.source.file.empty() || o.deep || o.isolate)
    return refuse_with(exit_usage, {errc::usage, "--host checks another machine: leave out FILE, --deep and --isolate", 0}, o.json);
  auto folders = folders_of(o.data);
  if (!folders) return refuse_with(exit_usage, folders.error(), o.json);
  const jobs_program program = program_of_environment();
  doctor::hosts_request request = o.host;
  request.data = std::move(*folders);
  request.version = PENSTOCK_VERSION;
  request.program = program.kind;
  request.program_facts = program.facts;
  request.dataset_program = o.program.command();
  request.deadline = deadline;
  facts found;
  const bool hangs = doctor::look_at_loader_host(request, found.hosts.emplace());
  const int code = report(found, o);
  if (!hangs) return code;
  std::fflush(nullptr);
  ::_exit(code);  // a thread still waits for storage; it would crash if the objects that it uses were destroyed
}

int examine(const doctor_options& o) {
  const auto timeout = parse_duration(o.probe_timeout);
  if (!timeout) return refuse_with(exit_usage, timeout.error(), o.json);
  if (!o.host.address.empty()) return examine_host(o, std::chrono::ceil<std::chrono::milliseconds>(*timeout));
  if (o.isolate && o.source.file.empty())
    return refuse_with(exit_usage, {errc::usage, "--isolate runs a job: name its config FILE", 0}, o.json);
  if (std::error_code fault; !std::filesystem::is_directory(o.root, fault))
    return refuse_with(exit_usage, {errc::usage, "--root: '" + o.root + "' is not a folder", 0}, o.json);
  config settings;
  facts found;
  if (!o.source.file.empty()) {
    auto loaded = load(o.source);
    if (!loaded) return tell_rejection(loaded.error(), o.json);
    settings = std::move(loaded->values);
    for (const auto& w : loaded->warnings) found.config_warnings.push_back(w.message);
  } else if (o.source.device) {
    settings.gpu.device = *o.source.device;
  }
  if (o.load_only) return doctor::load_without_workers(settings) == 0 ? exit_ok : exit_failed;

  doctor::gather_options where;
  where.root = o.root;
  where.probe_deadline = std::chrono::ceil<std::chrono::milliseconds>(*timeout);
  found.build = doctor::facts_of_this_build();
  doctor::look_at_job(settings, {!o.source.file.empty(), o.cpu_only, o.root}, found);
  found.machine = doctor::look_at_machine(where);
  if (o.root == "/") {
    doctor::look_at_group(settings, found.group);
    for (const auto& folder : left_launch_folders()) found.machine.left_folders.push_back(folder.string());
  }
  if (found.job.demand != doctor::gpu_demand::none) found.gpu = doctor::look_at_gpu(where);
  if (o.root == "/") doctor::look_at_decoder(settings, found.gpu);
  if (o.deep || o.isolate) go_deep(settings, o, found);
  if (o.isolate) isolate(settings, o, found);

  return report(found, o);
}

}  // namespace

void add_doctor_command(verb_table& verbs) {
  const auto o = std::make_shared<doctor_options>();
  CLI::App& verb = verbs.add(
      {"doctor",
       verb_group::look,
       "find what is wrong with this machine, its GPU or a config",
       "Checks driver, libraries, GPU, memory, limits and leftovers; with FILE also the job's dataset and "
       "worker program. Every result has an id, what was observed, what was expected, and a remedy. The "
       "driver is queried in separate processes, so even one that hangs gives a result.\n\n"
       "Exit code 0 if nothing fails, 3 if something does, 78 if the config file is wrong. docs/doctor.md "
       "lists the ids.\n\n"
       "With --host, asks a session that listens for loader hosts whether this machine can be one. If a loader "
       "host listens there, asks it whether a session here could use it. Checks secret, versions, round trip, "
       "bandwidth, clock and data. Nothing that runs there is disturbed.",
       {{"penstock doctor", "check this machine"},
        {"penstock doctor photos.toml", "check this machine for this job"},
        {"penstock doctor --deep photos.toml", "also use the GPU, and page-lock as much as the job will"},
        {"penstock doctor --isolate photos.toml",
         "run the job step by step and find the first step that fails"},
        {"penstock doctor --host trainer:7077 --secret-file hosts.secret",
         "can this machine be a loader host of the session there?"},
        {"penstock doctor --cpu-only --json", "for scripts on machines without a GPU"}}},
      [o] { return examine(*o); });
  add_config_options(verb, o->source);
  verb.get_option("FILE")->required(false);
  verb.add_option("--device", o->source.device, "auto, host, cuda, cuda:N or uuid:GPU-...")
      ->type_name("DEVICE");
  verb.add_option("--workers", o->source.workers, "loader worker processes, or \"auto\"")->type_name("N");
  verb.add_flag("--cpu-only", o->cpu_only, "skip the GPU's checks");
  verb.add_flag("--deep", o->deep,
                "allocate, copy, compute and compare on the GPU; page-lock the job's arena");
  verb.add_flag("--isolate", o->isolate,
                "run the job with 0, 1 and N workers, then with the GPU; report the first failure");
  verb.add_option("--root", o->root, "read /proc, /sys, /dev and libraries below this folder")
      ->type_name("DIR");
  verb.add_option("--probe-timeout", o->probe_timeout, "how long the driver, or with --host listing the dataset, may take")
      ->type_name("TIME")
      ->capture_default_str();
  auto* const host =
      verb.add_option("--host", o->host.address, "check only the session or the loader host at this address")
          ->type_name("ADDRESS:PORT");
  auto* const secret = verb.add_option("--secret-file", o->host.secret_file, "file with the secret of loader hosts")->type_name("FILE")->needs(host);
  verb.add_flag("--insecure", o->host.insecure, "without a secret and without encryption")->excludes(secret)->needs(host);
  verb.add_option("--data", o->data, "use TO on this machine for the session's folder FROM (may be "
                  "repeated)")->type_name("FROM=TO")->needs(host);
  o->program.add_to(verb)->needs(host);
  verb.add_flag("--json", o->json, "one JSON object on stdout");
  // For the throwaway process that --isolate starts.
  verb.add_flag("--load-only", o->load_only, "load the first samples without workers")->group("");
}

}  // namespace penstock::cli
