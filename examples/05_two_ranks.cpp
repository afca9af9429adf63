// Two processes share an epoch, like the ranks of a distributed training: each loads its half, and together
// they see every sample once. Started by hand, this program acts as the launcher and starts itself twice with
// RANK and WORLD_SIZE set, as torchrun, srun and mpirun do.
//
//   05_two_ranks CONFIG
#include <penstock/session.hpp>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

namespace {

constexpr int ranks = 2;

/// One rank: prints its samples.
int be_a_rank(const char* file) {
  // rank = "auto" takes rank and world size from the environment; uneven = "allow": no rank repeats a sample.
  penstock::config settings =
      penstock::load_config(file, {"sampler.rank=auto", "gpu.device=host", "sampler.uneven=allow"});
  settings.name +=
      "-" + std::to_string(*settings.sampler.rank);  // so that `penstock status --session NAME` can name each rank
  penstock::Session session(settings);
  for (const penstock::Batch& batch : session.epoch(0)) {
    for (const std::uint64_t sample : batch.samples())
      std::printf("%llu\n", static_cast<unsigned long long>(sample));
  }
  return 0;
}

/// Starts a rank and returns its output.
std::FILE* start_rank(char** argv, int rank, pid_t& pid) {
  ::setenv("RANK", std::to_string(rank).c_str(), 1);
  ::setenv("WORLD_SIZE", std::to_string(ranks).c_str(), 1);
  std::array<int, 2> pipe{};
  if (::pipe(pipe.data()) != 0) std::abort();
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, pipe[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_addclose(&actions, pipe[0]);
  if (::posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, argv, environ) != 0) std::abort();
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(pipe[1]);
  return ::fdopen(pipe[0], "r");
}

int launch(char** argv) {
  std::array<pid_t, ranks> pids{};
  std::array<std::FILE*, ranks> outputs{};
  for (int rank = 0; rank < ranks; ++rank) outputs[rank] = start_rank(argv, rank, pids[rank]);
  std::set<unsigned long long> together;
  std::size_t count = 0;
  bool sound = true;
  for (int rank = 0; rank < ranks; ++rank) {
    std::size_t mine = 0;
    for (unsigned long long sample = 0; std::fscanf(outputs[rank], "%llu", &sample) == 1; ++mine)
      together.insert(sample);
    std::fclose(outputs[rank]);
    int status = 0;
    ::waitpid(pids[rank], &status, 0);
    sound = sound && status == 0;
    count += mine;
    std::printf("rank %d: %zu samples\n", rank, mine);
  }
  std::printf("together %zu samples, %zu different ones\n", count, together.size());
  return sound && count == together.size() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s CONFIG\n", argv[0]);
    return 2;
  }
  try {
    return std::getenv("RANK") != nullptr ? be_a_rank(argv[1]) : launch(argv);
  } catch (const penstock::error& e) {
    std::fprintf(stderr, "%s: %s\n", penstock::name_of(e.code()), e.what());
    return 1;
  }
}
