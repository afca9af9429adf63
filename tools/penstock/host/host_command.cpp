// host: offers this machine's cores to a session on another machine, as loader workers.
#include "actors/remote/host_security.hpp"
#include "actors/remote/loader_host.hpp"
#include "runtime/base/worker_places.hpp"
#include "runtime/net/group_secret.hpp"
#include "runtime/process/process_facts.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/host/host_options.hpp"
#include "tools/penstock/host/hosts_by_ssh.hpp"
#include "tools/penstock/number_option.hpp"
#include "tools/penstock/output.hpp"
#include "tools/penstock/stop_signals.hpp"
#include "tools/penstock/verb_table.hpp"

#include <nlohmann/json.hpp>

#include <charconv>
#include <memory>

namespace penstock::cli {
namespace {


struct host_options {
  hosts::host_settings settings;
  std::string workers = "auto";
  std::vector<std::string> data;
  dataset_program_option program;
  std::vector<std::string> on;
  std::string command_there = "penstock";
  bool json = false;
};

/// The same command for the other machine, without the options about this one.
std::vector<std::string> arguments_there(const host_options& o) {
  std::vector<std::string> all;
  for (const std::string& one : o.settings.sessions) all.insert(all.end(), {"--join", one});
  all.insert(all.end(), {"--workers", o.workers});
  if (!o.settings.name.empty()) all.insert(all.end(), {"--name", o.settings.name});
  for (const std::string& one : o.data) all.insert(all.end(), {"--data", one});
  if (!o.program.file.empty()) all.insert(all.end(), {"--program", o.program.file});
  for (const std::string& one : o.program.arguments) all.push_back("--program-argument=" + one);
  if (o.settings.insecure) all.emplace_back("--insecure");
  return all;
}

int hosts_elsewhere(const host_options& o) {
  std::string secret;
  if (!o.settings.secret_file.empty()) {
    auto found = group::read_secret(o.settings.secret_file, "the hosts'");
    if (!found) return refuse_with(exit_config, found.error(), o.json);
    secret = std::move(found->bytes);
  } else if (!o.settings.insecure) {
    return refuse_with(exit_config, failure{errc::config, "there is no secret: give --secret-file with the session's, or --insecure if the session has none", 0},
                       o.json);
  }
  stop_signals signals;  // must exist before any thread starts
  auto made = hosts_by_ssh::start({o.on, o.command_there, arguments_there(o), std::move(secret)});
  if (!made) return refuse_with(made.error().code == errc::config ? exit_config : exit_failed, made.error(), o.json);
  signals.listen([&](int times) { (*made)->leave(times > 1); }, {.first = "leaving: hosts finish their batches"});
  const int code = (*made)->run();
  signals.ignore();
  if (o.json) print_json("penstock.host/1", {{"outcome", signals.received() != 0 ? "left" : "session_over"}, {"exit", code}});
  return code;
}

int host(host_options o) {
  if (o.settings.sessions.empty() && o.settings.listen.empty())
    return refuse_with(exit_usage, failure{errc::usage, "a host needs --join, where a session listens, or --listen, where sessions connect to it", 0}, o.json);
  const bool listens = !o.settings.listen.empty();
  for (const std::string& one : listens ? std::vector{o.settings.listen} : o.settings.sessions) {
    if (const auto address = hosts::parse_address(one); !address)
      return refuse_with(exit_usage, failure{errc::usage, fmt::format("{}: {}", listens ? "--listen" : "--join", address.error().message), 0}, o.json);
  }
  auto folders = folders_of(o.data);
  if (!folders) return refuse_with(exit_usage, folders.error(), o.json);
  if (!o.on.empty()) return hosts_elsewhere(o);
  o.settings.data = std::move(*folders);
  o.settings.version = PENSTOCK_VERSION;
  jobs_program program = program_of_environment();
  o.settings.program = {std::move(program.kind), std::move(program.command), std::move(program.environment), std::move(program.facts)};
  o.settings.dataset_program = o.program.command();
  o.settings.workers = process::usable_cores();
  if (o.workers != "auto") {
    const char* const end = o.workers.data() + o.workers.size();
    std::from_chars(o.workers.data(), end, o.settings.workers);
  }
  stop_signals signals;  // must exist before any thread starts
  auto made = hosts::loader_host::open(o.settings);
  if (!made) return refuse_with(made.error().code == errc::io ? exit_failed : exit_config, made.error(), o.json);
  signals.listen([&](int times) { (*made)->leave(times > 1); }, {.first = "leaving: workers finish their batches"});
  const auto done = (*made)->run();
  signals.ignore();
  if (!done) return refuse_with(done.error().code == errc::io ? exit_failed : exit_config, done.error(), o.json);
  if (o.json) print_json("penstock.host/1", {{"outcome", signals.received() != 0 ? "left" : "session_over"}});
  return exit_ok;
}

}  // namespace

void add_host_command(verb_table& verbs) {
  const auto o = std::make_shared<host_options>();
  CLI::App& verb = verbs.add(
      {"host",
       verb_group::run,
       "load samples on this machine for a session on another one",
       "Joins a session whose config sets [loader.hosts] listen, and runs workers for it: they read and decode "
       "samples here, and the session receives finished batches. With --listen it waits instead until a session connects "
       "([loader.hosts] connect). Several sessions can share its workers: with --listen, or with several --join. The stream is the same as without hosts. The "
       "dataset must be here too, with the same contents; --data says where. Session and hosts need the same "
       "version of penstock and, over a network, the same secret.\n\n"
       "Started as `python -m penstock host`, it also runs the jobs and datasets of Python sessions, but only over "
       "connections with a secret.\n\n"
       "With --program it also runs the workers of \"custom\" datasets, from its own copy of the session's worker program, which must be the "
       "same file. A session never sends a program, and cannot name another one.\n\n"
       "With --on it starts hosts on other machines by ssh. There, penstock must be on the PATH of commands that ssh runs. ssh must log in without "
       "a password. The hosts leave when this command ends.\n\n"
       "Exits with 0 when the sessions that it joined are over, or after SIGTERM once the workers have finished their batches; with 78 "
       "when a session refused this host, or if no worker can run here. Until a session answers, it keeps trying.",
       {{"penstock host --join trainer:7077 --secret-file hosts.secret", "a worker for each core"},
        {"penstock host --join trainer:7077 --workers 8 --data /data=/mnt/data --secret-file hosts.secret",
         "the session's /data is /mnt/data here"},
        {"penstock host --join one:7077 --join two:7077 --secret-file hosts.secret", "two sessions share its workers"},
        {"penstock host --listen 0.0.0.0:7077 --secret-file hosts.secret", "waits for sessions with connect = [\"loader-1:7077\"]"},
        {"penstock host --on user@one --on user@two --join trainer:7077 --secret-file hosts.secret", "starts two hosts by ssh"}}},
      [o] { return host(*o); });
  auto* const join = verb.add_option("--join", o->settings.sessions, "where the session listens (may be repeated)")->type_name("ADDRESS:PORT");
  auto* const listen = verb.add_option("--listen", o->settings.listen, "instead of --join: where to wait for sessions that connect; port 0: any free port")
                           ->type_name("ADDRESS:PORT")
                           ->excludes(join);
  auto* const on = verb.add_option("--on", o->on, "start the host there by ssh instead of here (may be repeated)")
                       ->type_name("[USER@]MACHINE")
                       ->needs(join)
                       ->excludes(listen);
  verb.add_option("--command", o->command_there, "with --on: how penstock is started there, such as \"venv/bin/python -m penstock\"")
      ->type_name("COMMAND")
      ->capture_default_str()
      ->needs(on);
  takes_whole_number_or(verb.add_option("--workers", o->workers, "how many workers; auto: one for each core"), {1, remote_workers_max},
                        "auto")
      ->type_name("N")
      ->capture_default_str();
  verb.add_option("--name", o->settings.name, "the host's name in the session's status; by default the machine's")->type_name("NAME");
  auto* const secret =
      verb.add_option("--secret-file", o->settings.secret_file, "file with the same secret as the session's [loader.hosts] secret_file")
          ->type_name("FILE");
  verb.add_flag("--insecure", o->settings.insecure, "join or wait without a secret and without encryption")->excludes(secret);
  verb.add_option("--data", o->data,
                  "use TO on this machine for the session's folder FROM (may be repeated). The host then reads only these folders and URLs")
      ->type_name("FROM=TO");
  o->program.add_to(verb);
  verb.add_flag("--json", o->json, "print one JSON object at the end");
}

}  // namespace penstock::cli
