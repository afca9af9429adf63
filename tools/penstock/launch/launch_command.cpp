// launch: starts one process per GPU, with the environment that torchrun sets, and ends them together.
#include "runtime/base/counted.hpp"
#include "runtime/base/replace_file.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/telemetry/report_json.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/config_source.hpp"
#include "tools/penstock/doctor/gather.hpp"
#include "tools/penstock/doctor/root_files.hpp"
#include "tools/penstock/doctor/throwaway.hpp"
#include "tools/penstock/launch/launch_run.hpp"
#include "tools/penstock/launch/session_ranks.hpp"
#include "tools/penstock/launch/stray_processes.hpp"
#include "tools/penstock/number_option.hpp"
#include "tools/penstock/output.hpp"
#include "tools/penstock/stop_signals.hpp"
#include "tools/penstock/text_table.hpp"
#include "tools/penstock/verb_table.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <nlohmann/json.hpp>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>

namespace penstock::cli {
namespace {

constexpr std::uint32_t restarts_max = 1'000'000;

struct launch_options {
  std::vector<std::string> words;
  config_source source;  // of FILE
  std::optional<std::uint64_t> batches;
  bool digest = false;
  std::string sink;
  std::string out;
  std::string gpus = "all";
  std::uint32_t max_restarts = 0;
  std::string report;
  bool json = false;
  bool quiet = false;
  bool no_prefix = false;

  /// A single argument that is not a program: a config file.
  [[nodiscard]] bool is_file() const { return words.size() == 1 && words[0].ends_with(".toml"); }
};

// ---- the machine ------------------------------------------------------------------------------------------

std::vector<int> allowed_cores() {
  cpu_set_t set;
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<unsigned>(core), &set)) cores.push_back(core);
  }
  return cores;
}

/// From the kernel's description of the PCI device.
std::vector<int> cores_near(std::string pci) {
  std::ranges::transform(pci, pci.begin(), [](unsigned char c) { return std::tolower(c); });
  return parse_core_list(doctor::text_of("/sys/bus/pci/devices/" + pci + "/local_cpulist"));
}

/// In a separate process: CUDA in this one would leave a context, or hang with the driver.
result<std::vector<launch_gpu>> visible_gpus() {
  const doctor::cuda_facts cuda = doctor::look_at_cuda({});
  if (!cuda.child.good()) return refuse(errc::system, "looking for GPUs: {}", cuda.child.trouble);
  std::vector<launch_gpu> gpus;
  for (const doctor::cuda_device_facts& d : cuda.devices)
    gpus.push_back({static_cast<std::uint32_t>(d.ordinal), d.name, d.uuid, cores_near(d.pci)});
  return gpus;
}

/// A port that is free now. It may be taken by the time the ranks' program uses it, as with every launcher.
result<std::uint16_t> free_port() {
  using boost::asio::ip::tcp;
  boost::asio::io_context io;
  boost::system::error_code status;
  tcp::acceptor acceptor(io);
  const tcp::endpoint any(boost::asio::ip::address_v4::loopback(), 0);
  acceptor.open(any.protocol(), status);
  if (!status) acceptor.bind(any, status);
  if (status) return refuse_os(errc::system, status.value(), "looking for a free port");
  return acceptor.local_endpoint().port();
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

std::string from_environment(const char* name, std::string otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

// ---- the program ------------------------------------------------------------------------------------------

/// Looks a program up like a shell.
result<std::string> find_in_path(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (::access(name.c_str(), X_OK) == 0 && !std::filesystem::is_directory(name)) return name;
    return refuse(errc::usage, "'{}' is not an executable program", printable(name));
  }
  std::string_view path = std::getenv("PATH") != nullptr ? std::getenv("PATH") : "/bin:/usr/bin";
  while (true) {
    const std::size_t end = path.find(':');
    const std::string file = (end == 0 ? "." : std::string(path.substr(0, end))) + "/" + name;
    if (::access(file.c_str(), X_OK) == 0 && !std::filesystem::is_directory(file)) return file;
    if (end == std::string_view::npos) break;
    path.remove_prefix(end + 1);
  }
  return refuse(errc::usage, "there is no program '{}' in PATH", printable(name));
}

result<launch_work> prepare(const launch_options& o) {
  if (o.words.empty())
    return refuse(errc::usage,
                  "which program? For example: penstock launch --gpus all -- ./trainer --epochs 3");
  const auto choice = parse_gpu_choice(o.gpus);
  if (!choice) return tl::unexpected(choice.error());
  launch_work work;
  auto program = o.is_file() ? result<std::string>("/proc/self/exe") : find_in_path(o.words[0]);
  if (!program) return tl::unexpected(std::move(program.error()));
  work.program = std::move(*program);
  work.arguments = [words = std::vector<std::string>(o.words.begin() + 1, o.words.end())](std::uint32_t) {
    return words;
  };
  work.environment = doctor::environment_now();
  std::vector<launch_gpu> gpus;
  if (choice->which != gpu_choice::kind::host) {
    auto found = visible_gpus();
    if (!found) return tl::unexpected(std::move(found.error()));
    gpus = std::move(*found);
  }
  auto places = plan_places(*choice, gpus, allowed_cores());
  if (!places) return tl::unexpected(std::move(places.error()));
  work.places = std::move(*places);
  const auto port = free_port();
  if (!port) return tl::unexpected(port.error());
  work.names = {from_environment("PENSTOCK_GROUP", fmt::format("launch-{}", ::getpid())),
                from_environment("MASTER_ADDR", "127.0.0.1"), *port, 0, o.max_restarts};
  work.rules.ranks = static_cast<std::uint32_t>(work.places.size());
  work.rules.max_restarts = o.max_restarts;
  work.all_to_stderr = o.json;
  work.prefixed = !o.no_prefix;
  if (colours_on(o.json ? STDERR_FILENO : STDOUT_FILENO))
    work.colours = {"\033[36m", "\033[33m", "\033[35m", "\033[32m", "\033[34m", "\033[31m"};
  work.tell = [](const std::string& line) { say(styled(style::yellow, "launch:") + " " + line); };
  return work;
}

// ---- sessions ---------------------------------------------------------------------------------------------

/// A temporary folder, removed with its contents.
class throwaway_folder {
 public:
  throwaway_folder() = default;
  ~throwaway_folder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  throwaway_folder(const throwaway_folder&) = delete;
  throwaway_folder& operator=(const throwaway_folder&) = delete;

  result<void> make() {
    std::error_code trouble;
    const auto parent = std::filesystem::temp_directory_path(trouble);
    std::string path = (parent / "penstock-launch-XXXXXX").string();
    if (trouble || ::mkdtemp(path.data()) == nullptr)
      return refuse_os(errc::io, trouble ? trouble.value() : errno, "making a folder for the ranks' reports");
    path_ = path;
    return {};
  }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

std::vector<std::string> run_arguments(const launch_options& o) {
  std::vector<std::string> words;
  const auto add = [&words](const char* option, const std::string& value) {
    words.emplace_back(option);
    words.push_back(value);
  };
  for (const std::string& assignment : o.source.sets) add("--set", assignment);
  if (o.source.epochs) add("--epochs", *o.source.epochs);
  if (o.source.workers) add("--workers", *o.source.workers);
  if (o.source.slots) add("--slots", *o.source.slots);
  if (o.batches) add("--batches", std::to_string(*o.batches));
  if (o.digest) words.emplace_back("--digest");
  words.emplace_back("--quiet");
  return words;
}

/// Loads the file like the first rank will, so that an error is reported once, before anything starts.
tl::expected<session_work, config_file::rejection> session_of(const launch_options& o, std::size_t ranks,
                                                              const std::string& report_folder) {
  config_source source = o.source;
  source.sets.push_back("sampler.rank=0");
  source.sets.push_back(fmt::format("sampler.world_size={}", ranks));
  auto loaded = load(source);
  if (!loaded) return tl::unexpected(std::move(loaded.error()));
  return session_work{
      source.file, loaded->values.name, loaded->values.metrics.listen, run_arguments(o), o.sink,
      o.out,       report_folder};
}

std::string text_of_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// ---- the end ----------------------------------------------------------------------------------------------

const char* name_of(launch_outcome outcome) {
  switch (outcome) {
    case launch_outcome::finished: return "finished";
    case launch_outcome::stopped: return "stopped";
    case launch_outcome::failed: return "failed";
  }
  return "";
}

std::string cause_sentence(const launch_result& r) {
  if (!r.cause) return {};
  const std::string who =
      r.cause->pid < 0 ? "could not be started" : fmt::format("(pid {}) ended", r.cause->pid);
  return fmt::format("rank {} {}: {}", r.cause->rank, who, r.cause->text);
}

double seconds_of(const rank_facts& rank) {
  return std::chrono::duration<double>(rank.ended - rank.began).count();
}

/// Schema penstock.group/1. `sessions`: null if the ranks are programs.
nlohmann::ordered_json report_of(const launch_work& work, const launch_result& r,
                                 const session_work* sessions) {
  using nlohmann::ordered_json;
  ordered_json ranks = ordered_json::array();
  for (std::uint32_t i = 0; i < r.ranks.size(); ++i) {
    const rank_facts& rank = r.ranks[i];
    const rank_place& place = work.places[i];
    ordered_json one{
        {"rank", i},
        {"world_size", r.ranks.size()},
        {"pid", rank.pid > 0 ? ordered_json(rank.pid) : ordered_json()},
        {"gpu", place.gpu ? ordered_json(place.gpu->uuid) : ordered_json()},
        {"cores", place.cores.empty() ? ordered_json() : ordered_json(core_list(place.cores))},
        {"starts", rank.starts},
        {"exit", rank.code ? ordered_json(*rank.code) : ordered_json()},
        {"signal", rank.signal ? ordered_json(process::signal_name(*rank.signal)) : ordered_json()},
        {"end", rank.end},
        {"left_behind", rank.left_behind},
        {"seconds", seconds_of(rank)},
        {"last_lines", rank.code == 0 ? "" : printable(r.last_lines[i])}};
    const auto count = static_cast<std::uint32_t>(r.ranks.size());
    if (sessions != nullptr)
      one = rank_report(text_of_file(report_path(*sessions, i)), i, count, std::move(one));
    ranks.push_back(std::move(one));
  }
  ordered_json all{{"schema", "penstock.group/1"},  {"group", work.names.group},
                   {"outcome", name_of(r.outcome)}, {"error", nullptr},
                   {"error_kind", nullptr},         {"first_cause", nullptr},
                   {"restarts", r.restarts},        {"ranks", std::move(ranks)}};
  if (r.cause) {
    all["error"] = cause_sentence(r);
    all["error_kind"] = "rank_failed";
    all["first_cause"] = {{"rank", r.cause->rank},
                          {"host", host_name()},
                          {"pid", r.cause->pid > 0 ? ordered_json(r.cause->pid) : ordered_json()},
                          {"cause", r.cause->text}};
  }
  return all;
}

void show_table(const launch_work& work, const launch_result& r) {
  std::vector<std::vector<std::string>> rows;
  for (std::uint32_t i = 0; i < r.ranks.size(); ++i) {
    const rank_facts& rank = r.ranks[i];
    const rank_place& place = work.places[i];
    rows.push_back({std::to_string(i), rank.pid > 0 ? std::to_string(rank.pid) : "-",
                    place.gpu ? fmt::format("{} {}", place.gpu->ordinal, place.gpu->name) : "host",
                    place.cores.empty() ? "all" : core_list(place.cores), std::to_string(rank.starts),
                    duration_for_people(rank.ended - rank.began), rank.end});
  }
  say_raw(text_table({{"RANK", column_side::right},
                      {"PID", column_side::right},
                      {"GPU", column_side::left, true},
                      {"CORES"},
                      {"STARTS", column_side::right},
                      {"TIME", column_side::right},
                      {"ENDED"}},
                     rows, terminal_width(STDERR_FILENO)));
}

int tell_end(const launch_options& o, const launch_work& work, const launch_result& r,
             const session_work* sessions, int signal) {
  const nlohmann::ordered_json report = report_of(work, r, sessions);
  if (o.json) print_json(report);
  if (!o.quiet) {
    show_table(work, r);
    const style how = r.outcome == launch_outcome::failed    ? style::red
                      : r.outcome == launch_outcome::stopped ? style::yellow
                                                             : style::green;
    const std::string why = cause_sentence(r);
    say(styled(how, name_of(r.outcome)) + (why.empty() ? "" : ": " + why));
  }
  if (!o.report.empty()) {
    if (auto ok = replace_file(o.report, report.dump(2) + "\n"); !ok)
      return refuse_with(exit_failed, ok.error(), o.json);
  }
  if (r.outcome == launch_outcome::failed) return exit_failed;
  if (r.outcome == launch_outcome::stopped) return signal == SIGINT ? exit_interrupted : exit_terminated;
  return exit_ok;
}

int launch(launch_options o) {
  if (o.is_file()) o.source.file = o.words[0];
  stop_signals signals;  // before any thread
  auto work = prepare(o);
  if (!work)
    return refuse_with(work.error().code == errc::usage ? exit_usage : exit_failed, work.error(), o.json);
  if (!o.report.empty()) {
    if (auto ok = check_replaceable(o.report); !ok) return refuse_with(exit_failed, ok.error(), o.json);
  }
  throwaway_folder reports;
  std::optional<session_work> sessions;
  if (o.is_file()) {
    if (auto ok = reports.make(); !ok) return refuse_with(exit_failed, ok.error(), o.json);
    auto session = session_of(o, work->places.size(), reports.path());
    if (!session) return tell_rejection(session.error(), o.json);
    sessions = std::move(*session);
    work->arguments = [&work, &sessions](std::uint32_t rank) {
      return rank_arguments(*sessions, work->places[rank], rank);
    };
  }
  adopt_orphans();
  launch_result made;
  {
    process::io_thread io;
    launch_run run(io, *work);
    signals.listen([&](int times) { run.stop(signals.received(), times > 1); },
                   fmt::format("stopping: passing the signal on to {} (press again to kill)",
                               counted(work->places.size(), "rank")));
    made = run.run();
    signals.ignore();
  }
  if (sessions && made.cause) {
    if (const std::string why = own_words(text_of_file(report_path(*sessions, made.cause->rank)));
        !why.empty())
      made.cause->text += ": " + why;
  }
  return tell_end(o, *work, made, sessions ? &*sessions : nullptr, signals.received());
}

}  // namespace

void add_launch_command(verb_table& verbs) {
  auto o = std::make_shared<launch_options>();
  CLI::App* const verb = &verbs.add(
      {"launch",
       verb_group::run,
       "start a session or a program once per GPU, as a group of ranks",
       "Starts one process for each GPU: with FILE a session (penstock run FILE), which delivers its part of "
       "the "
       "samples, otherwise PROGRAM. Each rank gets the variables that torchrun sets: RANK, LOCAL_RANK, "
       "WORLD_SIZE, "
       "LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT (a free port). GPU LOCAL_RANK is the rank's own. Each "
       "rank may "
       "only use its share of the cores near its GPU.\n\n"
       "The output of the ranks is prefixed with their number. If a rank fails, the others get SIGTERM, and "
       "SIGKILL 4 s later; with --max-restarts all ranks are started again. The error names the rank that "
       "failed "
       "first. Processes that the ranks leave behind are killed.\n\n"
       "Ctrl-C and SIGTERM are passed on; the ranks have 25 s to end. A second signal kills them.",
       {{"penstock launch photos.toml --gpus all", "a session on each GPU"},
        {"penstock launch photos.toml --gpus host:4 --json --digest",
         "four sessions without a GPU, one report"},
        {"penstock launch --gpus all -- python train.py --epochs 3", "a PyTorch program on all GPUs"},
        {"penstock launch --gpus 0,2 --max-restarts 3 -- ./trainer", "two GPUs; up to three restarts"}}},
      [o] { return launch(*o); });
  verb->add_option("FILE|PROGRAM", o->words,
                   "a config file (.toml); or, after --, a program and its arguments")
      ->required();
  verb->add_option("--gpus", o->gpus,
                   "\"all\", GPU numbers such as 0,2,3, or host:N for N ranks without a GPU")
      ->type_name("GPUS")
      ->capture_default_str();
  takes_whole_number(verb->add_option("--max-restarts", o->max_restarts,
                                      "start all ranks again up to N times when one fails"),
                     {0, restarts_max})
      ->capture_default_str();
  add_set_option(*verb, o->source);
  verb->add_option("--epochs", o->source.epochs, "for each session: number of epochs")->type_name("N");
  verb->add_option("--workers", o->source.workers, "for each session: worker processes, or \"auto\"")
      ->type_name("N");
  verb->add_option("--slots", o->source.slots, "for each session: slots of each worker")->type_name("N");
  takes_whole_number(verb->add_option("--batches", o->batches, "each session stops after N batches"),
                     {0, std::numeric_limits<std::uint64_t>::max()});
  verb->add_flag("--digest", o->digest, "each session hashes every batch as it is on the device");
  verb->add_option("--sink", o->sink, "where each session's batches go: null, npy, journal:PATH")
      ->type_name("SINK");
  verb->add_option("--out", o->out, "folder for --sink npy, with a folder for each rank")->type_name("DIR");
  verb->add_option("--report", o->report, "write a report to this file (JSON, schema penstock.group/1)")
      ->type_name("FILE");
  verb->add_flag("--no-prefix", o->no_prefix, "do not prefix lines with their rank");
  verb->add_flag("--json", o->json,
                 "the report as one JSON object on stdout; the ranks' output goes to stderr");
  verb->add_flag("--quiet", o->quiet, "no table, no closing line");
}

}  // namespace penstock::cli
