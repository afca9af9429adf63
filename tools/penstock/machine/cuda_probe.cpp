#include "tools/penstock/machine/cuda_probe.hpp"

#include "runtime/process/spawn.hpp"
#include "tools/penstock/machine/probe.hpp"

#include <sstream>

namespace penstock::machine {

using nlohmann::json;

probed probe(const std::vector<std::string>& words, std::chrono::milliseconds deadline) {
  probed p;
  const auto program = process::find_program("penstock-probe");
  if (!program) {
    p.child.trouble = program.error().message;
    return p;
  }
  const ended_child end = run_to_the_end(*program, words, deadline);
  p.child.ending = end.ending;
  p.child.trouble = end.trouble;
  std::istringstream lines(end.output);
  for (std::string line; std::getline(lines, line);) {
    const json facts = json::parse(line, nullptr, false);
    if (facts.is_object()) p.told.update(facts);  // if a probe died, its last line may be incomplete
  }
  p.child.step = p.told.value("step", "");
  p.said = last_line(end.errors);
  return p;
}

cuda_facts look_at_cuda(const std::filesystem::path& root, std::chrono::milliseconds deadline) {
  const probed p = probe({"cuda", root.string()}, deadline);
  cuda_facts c;
  c.child = p.child;
  take(p.told, "path", c.path, "load_error", c.load_error, "driver_version", c.driver_version,
       "init_code", c.init_code, "init_name", c.init_name);
  for (const json& d : p.told.value("devices", json::array())) {
    cuda_device_facts facts;
    take(d, "ordinal", facts.ordinal, "name", facts.name, "uuid", facts.uuid, "pci", facts.pci,
         "major", facts.major, "minor", facts.minor);
    c.devices.push_back(std::move(facts));
  }
  for (const json& one : p.told.value("peers", json::array())) {
    peer_facts peers;
    take(one, "a", peers.a, "b", peers.b, "access", peers.access);
    c.peers.push_back(peers);
  }
  return c;
}

}  // namespace penstock::machine
