// A run that can be interrupted at any time and continues where it stopped: press Ctrl-C, start it again. The
// number of workers may change; the stream of batches stays the same.
//
//   04_resume CONFIG STATE_FILE
#include <penstock/session.hpp>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

// The library installs no signal handlers; the program does. A handler may only record the signal.
volatile std::sig_atomic_t interrupted = 0;

std::vector<char> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Write a temporary file first: the state file is either complete or unchanged.
void write_file(const std::string& path, const std::vector<std::byte>& bytes) {
  std::ofstream(path + ".new", std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  std::filesystem::rename(path + ".new", path);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s CONFIG STATE_FILE\n", argv[0]);
    return 2;
  }
  std::signal(SIGINT, [](int) { interrupted = 1; });
  try {
    const std::string state_file = argv[2];
    const std::vector<char> saved = read_file(state_file);  // empty the first time
    penstock::session_options options;
    options.state = std::as_bytes(std::span(saved));
    options.digests = true;  // only to show that the stream continues exactly; costs one read-back per batch
    penstock::Session session(penstock::load_config(argv[1], {"gpu.device=host"}), options);
    if (!saved.empty()) std::fprintf(stderr, "resuming from %s\n", state_file.c_str());

    while (interrupted == 0) {
      std::optional<penstock::Batch> batch = session.next();
      if (!batch) break;
      // Your training step goes here. Save the state after it, so that the state covers only finished steps.
      std::printf("epoch %llu batch %llu digest %016llx\n", static_cast<unsigned long long>(batch->epoch()),
                  static_cast<unsigned long long>(batch->sequence()),
                  static_cast<unsigned long long>(batch->digest()));
      std::fflush(stdout);
    }

    session.stop();
    if (interrupted == 0) {
      std::filesystem::remove(state_file);
      std::fprintf(stderr, "finished\n");
      return 0;
    }
    // At most 1 KiB, however long the run. A program that may be killed without warning should write it every
    // few seconds instead.
    write_file(state_file, session.state());
    std::fprintf(stderr, "interrupted; start again to continue\n");
    return 130;
  } catch (const penstock::error& e) {
    std::fprintf(stderr, "%s: %s\n", penstock::name_of(e.code()), e.what());
    return 1;
  }
}
