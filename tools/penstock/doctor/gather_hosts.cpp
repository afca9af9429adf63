#include "actors/protocol/config_bytes.hpp"
#include "actors/protocol/tensors.hpp"
#include "actors/remote/agreement.hpp"
#include "actors/remote/dataset_program.hpp"
#include "actors/remote/host_probe.hpp"
#include "actors/remote/host_security.hpp"
#include "runtime/base/units.hpp"
#include "runtime/dataset/factory.hpp"
#include "runtime/process/process_facts.hpp"
#include "tools/penstock/doctor/gather.hpp"

#include <future>
#include <thread>

namespace penstock::doctor {
namespace {

/// What this machine finds for the session's config.
struct found_here {
  std::string path;
  std::string trouble;
  dataset_description dataset;
  std::vector<hosts::wire_fact> program;  // facts about the program of a custom dataset
};

found_here list_here(const std::string& settings_of_session, const string_map& data, const std::vector<std::string>& program) {
  found_here found;
  auto settings = protocol::config_from_bytes(settings_of_session);
  if (settings) settings = hosts::config_on_host(std::move(*settings), data);
  if (!settings) {
    found.trouble = settings.error().message;
    return found;
  }
  found.path = settings->dataset.path;
  if (auto ok = hosts::check_lists(*settings, data); !ok) {
    found.trouble = ok.error().message;
    return found;
  }
  if (hosts::is_custom(*settings)) {
    auto described = hosts::describe_custom_on_host(*settings, program, data);
    if (!described) {
      found.trouble = described.error().message;
      return found;
    }
    found.dataset = std::move(described->dataset);
    found.program = std::move(described->facts);
    return found;
  }
  auto listed = prepare_dataset(*settings, {}, settings->image.decoder);
  if (listed)
    found.dataset = std::move(listed->description);
  else
    found.trouble = listed.error().message;
  return found;
}

/// A separate thread lists the dataset: storage that does not answer must not keep this command waiting. Such a thread is abandoned; the caller
/// ends the process without waiting for it.
found_here list_within(const hosts_request& request, const std::string& settings, bool& hangs) {
  const std::chrono::milliseconds deadline = request.deadline;
  auto task = std::make_shared<std::packaged_task<found_here()>>(
      [settings, data = request.data, program = request.dataset_program] { return list_here(settings, data, program); });
  auto done = task->get_future();
  std::thread([task] { (*task)(); }).detach();
  if (done.wait_for(deadline) == std::future_status::ready) return done.get();
  hangs = true;
  found_here found;
  found.trouble = fmt::format("listing the dataset took longer than {} (--probe-timeout)", duration_for_people(deadline));
  return found;
}

void compare(hosts::host_probe& probe, hosts::from_host found, hosts_facts& to) {
  auto difference = probe.compare(std::move(found));
  to.compared = difference.has_value();
  to.difference = difference ? *difference : "";
}

}  // namespace

bool look_at_loader_host(const hosts_request& request, hosts_facts& to) {
  using peer = hosts::probe_answers::peer;
  to.address = request.address;
  to.version = request.version;
  to.cores = process::usable_cores();
  auto address = hosts::parse_address(request.address);
  if (!address) {
    to.address_trouble = address.error().message;
    return false;
  }
  hosts::host_probe probe({std::move(*address), request.secret_file, request.insecure, request.version});
  const hosts::probe_answers& said = probe.answers();
  to.who = said.who == peer::session ? hosts_facts::peer::session
           : said.who == peer::host  ? hosts_facts::peer::host
                                     : hosts_facts::peer::none;
  to.reached = said.reached;
  to.reach_trouble = said.no_connection;
  to.encrypted = said.encrypted;
  to.secret_trouble = said.no_secret;
  to.name = said.name;
  to.version_trouble = said.other_version;
  to.measure_trouble = said.not_measured;
  to.round_trip_seconds = std::chrono::duration<double>(said.round_trip).count();
  to.bytes_per_second = said.bytes_per_second;
  to.clock_ahead_seconds = std::chrono::duration<double>(said.clock_ahead).count();
  to.workers = said.workers;
  if (said.who != peer::session || !said.not_measured.empty()) return false;
  to.program = said.invitation.program;
  to.own_program = request.program;
  if (!to.program.empty()) {
    if (to.program == to.own_program) compare(probe, hosts::program_found{hosts::as_wire(request.program_facts)}, to);
    return false;
  }
  bool hangs = false;
  const found_here found = list_within(request, said.invitation.config, hangs);
  to.data_path = found.path;
  to.data_trouble = found.trouble;
  to.samples = found.dataset.samples;
  to.fingerprint = found.dataset.fingerprint;
  if (found.trouble.empty())
    compare(probe, hosts::dataset_found{{found.dataset.type, found.dataset.samples, protocol::as_wire(found.dataset.tensors), found.dataset.fingerprint}, found.program}, to);
  return hangs;
}

}  // namespace penstock::doctor
