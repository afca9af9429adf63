// One rank of a group, for group_program_test.py: enters collective operations, each with bytes that depend
// on all earlier results, and prints a digest of everything at the end. Not a test by itself.
//
//   group_program ROUNDS [--wait] [--state FILE] [--die RANK:ROUND] [--odd RANK:WHAT] [--pause MS] [--large BYTES] [--beside NAME]
//                [--lost-after MS] [--join MS] [--deadline MS]
#include "tests/runtime/program_group/rank_main.hpp"

#include <penstock/group.hpp>

#include <fmt/core.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

namespace {

struct wanted {
  std::uint64_t rounds = 0;
  bool waits = false;
  std::string state{};
  std::optional<std::uint32_t> dies{};
  std::uint64_t dies_in = 0;
  std::optional<std::uint32_t> odd{};
  std::string what{};
  std::chrono::milliseconds pause{0};
  std::optional<std::chrono::milliseconds> lost_after{};
  std::chrono::milliseconds join = 20s;
  std::chrono::milliseconds deadline = 30s;  // for each operation
  std::size_t large = 0;
  std::string beside{};  // the name of another group, with a barrier in every round
};

wanted parse(int count, char** arguments) {
  wanted w;
  w.rounds = std::strtoull(arguments[1], nullptr, 10);
  for (int i = 2; i < count; ++i) {
    const std::string_view name = arguments[i];
    if (name == "--wait") {
      w.waits = true;
      continue;
    }
    const std::string value = arguments[++i];
    const std::string behind = value.substr(value.find(':') + 1);
    if (name == "--state") w.state = value;
    if (name == "--lost-after") w.lost_after = std::chrono::milliseconds(std::stoi(value));
    if (name == "--join") w.join = std::chrono::milliseconds(std::stoi(value));
    if (name == "--deadline") w.deadline = std::chrono::milliseconds(std::stoi(value));
    if (name == "--pause") w.pause = std::chrono::milliseconds(std::stoi(value));
    if (name == "--beside") w.beside = value;
    if (name == "--large") w.large = std::stoul(value);
    if (name == "--die") {
      w.dies = static_cast<std::uint32_t>(std::stoul(value));
      w.dies_in = std::stoull(behind);
    }
    if (name == "--odd") {
      w.odd = static_cast<std::uint32_t>(std::stoul(value));
      w.what = behind;
    }
  }
  return w;
}

/// FNV-1a.
std::uint64_t hashed(std::uint64_t sum, const std::vector<std::byte>& bytes) {
  for (const std::byte b : bytes) sum = (sum ^ static_cast<unsigned char>(b)) * 0x100000001b3;
  return sum;
}

struct kept {
  std::uint64_t collectives = 0;
  std::uint64_t sum = 0xcbf29ce484222325;
};

kept read_state(const std::string& file) {
  kept k;
  std::ifstream in(file);
  if (in) in >> k.collectives >> k.sum;
  return k;
}
void write_state(const std::string& file, const kept& k) {
  if (file.empty()) return;
  std::ofstream(file + ".new") << k.collectives << ' ' << k.sum << '\n';
  std::filesystem::rename(file + ".new", file);
}

int run(const wanted& w) {
  const char* const own =
      std::getenv("RANK") != nullptr ? std::getenv("RANK") : std::getenv("OMPI_COMM_WORLD_RANK");
  const std::string state = w.state.empty() ? "" : w.state + "." + (own != nullptr ? own : "0");
  kept at = state.empty() ? kept{} : read_state(state);
  penstock::group_options options;
  options.name = "test";
  options.settings.on_lost_rank = w.waits ? penstock::lost_rank_rule::wait : penstock::lost_rank_rule::fail;
  options.settings.join_timeout = w.join;
  if (w.lost_after) options.settings.lost_after = *w.lost_after;
  options.collectives = at.collectives;
  const bool odd = w.odd && own != nullptr && std::to_string(*w.odd) == own;
  options.agree = {{"the seed", odd && w.what == "seed" ? "8" : "7"}};
  penstock::Group group(std::move(options));
  std::optional<penstock::Group> beside;
  if (!w.beside.empty()) beside.emplace(penstock::group_options{.name = w.beside});
  const bool is_odd = w.odd == group.rank();
  const bool first_life = at.collectives == 0;
  while (group.collectives() < w.rounds) {
    const std::uint64_t round = group.collectives() + 1;
    if (first_life && w.dies == group.rank() && round == w.dies_in) static_cast<void>(std::raise(SIGKILL));
    if (is_odd && w.what == "leaves" && round == 3) break;
    if (is_odd && w.what == "throws" && round == 3) throw std::runtime_error("out of ideas");
    if (is_odd && w.what == "sleeps" && round == 3) std::this_thread::sleep_for(3s);
    const bool barrier = round % 5 == 0 || (is_odd && w.what == "kind" && round == 3);
    if (barrier) {
      group.barrier(w.what == "sleeps" ? 1s : w.deadline);
    } else {
      std::vector<std::byte> bytes(w.large > 0 ? w.large : 8 + group.rank());
      std::memcpy(bytes.data(), &at.sum, sizeof at.sum);
      bytes.back() = static_cast<std::byte>(group.rank());
      for (const auto& one : group.all_gather(bytes, w.what == "sleeps" ? 1s : w.deadline))
        at.sum = hashed(at.sum, one);
    }
    if (beside) beside->barrier(30s);
    at.collectives = group.collectives();
    write_state(state, at);
    if (w.pause > 0ms) std::this_thread::sleep_for(w.pause);
  }
  fmt::print("{{\"rank\": {}, \"world_size\": {}, \"collectives\": {}, \"digest\": \"{:016x}\"}}\n",
             group.rank(), group.world_size(), group.collectives(), at.sum);
  std::fflush(stdout);
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  return penstock::testing::rank_main([&] { return run(parse(count, arguments)); });
}
