// The picture pipeline as a program, for comparing it with Pillow and for measuring it.
//
//   picture_tool rows PIXELS < requests
//     a request a line: path, augment, height, width, seed, epoch, sample, exif|ignore, separated by tabs.
//     Answers a line each: "ok TOP LEFT HEIGHT WIDTH FLIP" or "error SENTENCE"; the pixels of those that are
//     ok go to PIXELS.
//   picture_tool bench SECONDS AUGMENT HEIGHT WIDTH FILE...
//     loads the files again and again on one core; prints pictures a second of CPU time and RssAnon.
#include "runtime/dataset/file_reader.hpp"
#include "runtime/dataset/picture/picture.hpp"

#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

using namespace penstock;

namespace {

augment_kind augment_of(const std::string& name) {
  if (name == "none") return augment_kind::none;
  if (name == "centre-crop") return augment_kind::centre_crop;
  return augment_kind::random_resized_crop;
}

int rows(const char* pixels_path) {
  std::ofstream pixels(pixels_path, std::ios::binary);
  file_reader reader;
  for (std::string line; std::getline(std::cin, line);) {
    std::vector<std::string> field;
    std::istringstream parts(line);
    for (std::string part; std::getline(parts, part, '\t');) field.push_back(part);
    if (field.size() != 8) return 2;
    image_config config;
    config.augment = augment_of(field[1]);
    config.size = {static_cast<std::uint32_t>(std::stoul(field[2])),
                   static_cast<std::uint32_t>(std::stoul(field[3]))};
    config.orientation = field[7] == "exif" ? orientation_rule::exif : orientation_rule::ignore;
    random_source random(std::stoull(field[4]), std::stoull(field[5]), std::stoull(field[6]));
    std::vector<std::uint8_t> out(std::size_t{config.size[0]} * config.size[1] * 3);
    picture_loader loader(config);
    const auto file = reader.read(field[0], 1U << 30U);
    if (!file) {
      std::cout << "error " << file.error().message << '\n';
      continue;
    }
    const auto chosen = loader.load(*file, format_by_name(field[0]), random, out);
    if (!chosen) {
      std::cout << "error " << chosen.error().message << '\n';
      continue;
    }
    std::cout << "ok " << chosen->box.top << ' ' << chosen->box.left << ' ' << chosen->box.height << ' '
              << chosen->box.width << ' ' << (chosen->flip ? 1 : 0) << '\n';
    pixels.write(reinterpret_cast<const char*>(out.data()), static_cast<std::streamsize>(out.size()));
  }
  return pixels.flush() ? 0 : 1;
}

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

std::string rss_anon() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return line.substr(8);
  }
  return "?";
}

int bench(double seconds, const image_config& config, const std::vector<std::string>& files) {
  file_reader reader;
  picture_loader loader(config);
  std::vector<std::uint8_t> out(std::size_t{config.size[0]} * config.size[1] * 3);
  std::uint64_t loaded = 0;
  const auto pass = [&](std::uint64_t epoch) {
    for (std::size_t i = 0; i < files.size(); ++i, ++loaded) {
      random_source random(1, epoch, i);
      const auto file = reader.read(files[i], 1U << 30U);
      if (!file || !loader.load(*file, format_by_name(files[i]), random, out)) {
        std::cerr << files[i] << " failed\n";
        std::exit(1);
      }
    }
  };
  pass(0);
  loaded = 0;
  const double begin = cpu_seconds();
  for (std::uint64_t epoch = 1; cpu_seconds() - begin < seconds; ++epoch) pass(epoch);
  const double spent = cpu_seconds() - begin;
  std::printf("%.0f pictures a second (%.1f us each), RssAnon%s\n", static_cast<double>(loaded) / spent,
              spent / static_cast<double>(loaded) * 1e6, rss_anon().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "rows") == 0) return rows(argv[2]);
  if (argc > 6 && std::strcmp(argv[1], "bench") == 0) {
    image_config config;
    config.augment = augment_of(argv[3]);
    config.size = {static_cast<std::uint32_t>(std::stoul(argv[4])),
                   static_cast<std::uint32_t>(std::stoul(argv[5]))};
    return bench(std::stod(argv[2]), config, {argv + 6, argv + argc});
  }
  std::cerr << "usage: picture_tool rows PIXELS < requests | picture_tool bench SECONDS AUGMENT HEIGHT WIDTH "
               "FILE...\n";
  return 2;
}
