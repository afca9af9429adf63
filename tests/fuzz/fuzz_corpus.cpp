// In libFuzzer programs: writes the target's seeds into the corpus, the first folder of the command line, so that libFuzzer starts from them.
#include "tests/fuzz/fuzz_target.hpp"

#include <filesystem>
#include <fstream>

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  for (int i = 1; i < *argc; ++i) {
    const std::filesystem::path corpus = (*argv)[i];
    if (!std::filesystem::is_directory(corpus)) continue;
    int number = 0;
    for (const std::string& seed : fuzz_seeds())
      std::ofstream(corpus / ("seed-" + std::to_string(number++)), std::ios::binary) << seed;
    return 0;
  }
  return 0;
}
