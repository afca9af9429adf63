// The tables of `penstock status` and `penstock deaths`, from a session's answers.
#include "tools/penstock/watch/session_tables.hpp"

#include "runtime/telemetry/report_json.hpp"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

using namespace penstock;

namespace {

session_status status_with(std::optional<std::vector<gpu_process>> processes) {
  session_status s;
  s.session = "photos";
  s.gpu = {"cuda", "NVIDIA H200", "GPU-1"};
  s.gpu_state = "ready";
  s.gpu_pid = 4127;
  s.gpu_processes = std::move(processes);
  return s;
}

std::string gpu_lines(const session_status& s) {
  cli::target gpu;
  gpu.kind = cli::target_kind::gpu;
  return cli::status_for_people(telemetry::as_json(s), gpu, 200);
}

}  // namespace

TEST_CASE("the processes on the GPU are told with pid and memory, and null when nobody could say") {
  const auto known =
      telemetry::as_json(status_with({{{4127, 1U << 30U}, {77, 0}}})).at("gpu").at("processes");
  REQUIRE(known.size() == 2);
  CHECK(known[0].at("pid") == 4127);
  CHECK(known[0].at("bytes") == 1U << 30U);
  CHECK(telemetry::as_json(status_with(std::nullopt)).at("gpu").at("processes").is_null());
  CHECK(telemetry::as_json(status_with(std::vector<gpu_process>())).at("gpu").at("processes").empty());
}

TEST_CASE("people see which of the GPU's processes is the owner") {
  const std::string text = gpu_lines(status_with({{{4127, 1U << 30U}, {77, 512U << 20U}}}));
  CHECK(text.find("pid 4127, the owner (1.00 GiB), pid 77 (512 MiB)") != std::string::npos);
  CHECK(text.find("namespace") == std::string::npos);
}

TEST_CASE("pids that cannot be the owner's are said to be of another pid namespace") {
  CHECK(gpu_lines(status_with({{{9, 1U << 30U}}})).find("another pid namespace") != std::string::npos);
}

TEST_CASE("without an answer of NVML the line is left out") {
  CHECK(gpu_lines(status_with(std::nullopt)).find("NVML") == std::string::npos);
}

TEST_CASE("the sacrificial worker is called so") {
  CHECK(cli::worker_name({{"id", 3}, {"sacrificial", false}}) == "worker/3");
  CHECK(cli::worker_name({{"id", 64}, {"sacrificial", true}}) == "worker/64 (sacrificial)");
  CHECK(cli::worker_name({{"worker", 64}, {"sacrificial", true}}) == "worker/64 (sacrificial)");
  // A session of an older version does not report it.
  CHECK(cli::worker_name({{"id", 64}}) == "worker/64");
}

TEST_CASE("deaths of workers and of GPU owners are one list in the order in which they happened") {
  death_report worker;
  worker.time = std::chrono::system_clock::time_point(std::chrono::seconds(20));
  owner_death_report owner;
  owner.time = std::chrono::system_clock::time_point(std::chrono::seconds(10));
  const nlohmann::ordered_json answer{{"deaths", {telemetry::as_json(worker)}},
                                      {"owner_deaths", {telemetry::as_json(owner)}}};
  const auto all = cli::all_deaths(answer);
  REQUIRE(all.size() == 2);
  CHECK_FALSE(all[0].contains("worker"));
  CHECK(all[1].contains("worker"));
  CHECK(cli::hint_after_deaths(all) == "penstock logs worker/0 --previous");
  CHECK(cli::deaths_for_people(all, 0).find("\ngpu ") != std::string::npos);
}
