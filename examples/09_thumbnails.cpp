// Makes thumbnails of all JPEG files in a folder, in worker processes that run 09_thumbnail_worker. Names the
// files that kill their workers at the end; all others get their thumbnails.
//
//   09_thumbnails FOLDER OUT
#include <penstock/pool.hpp>

#include <cstdio>
#include <deque>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s FOLDER OUT\n", argv[0]);
    return 2;
  }
  namespace fs = std::filesystem;
  try {
    const fs::path out = argv[2];
    fs::create_directories(out);
    penstock::config settings;
    settings.name = "thumbnails";
    settings.loader.command = {"09_thumbnail_worker"};  // looked up next to this program, then in PATH
    settings.loader.workers = 2;
    settings.log.level = penstock::log_level::off;  // the program prints everything itself
    penstock::Pool pool(settings);

    // Called for the next file only when there is room for another job, so a folder of millions needs no more
    // memory.
    fs::directory_iterator next(argv[1]);
    std::deque<fs::path> files;  // the paths of the jobs in flight
    const auto inputs = [&]() -> std::optional<penstock::Argument> {
      for (; next != fs::directory_iterator(); ++next) {
        if (next->path().extension() != ".jpg") continue;
        files.push_back(next->path());
        ++next;
        return penstock::Argument(files.back().string());
      }
      return std::nullopt;
    };

    std::size_t made = 0;
    std::size_t seen = 0;
    auto mapping = pool.map("thumbnail", inputs);
    while (auto item = mapping.next()) {
      const fs::path file = std::move(files.front());
      files.pop_front();
      ++seen;
      if (const auto why = item->job.why()) {
        std::printf("%s: %s: %s\n", file.filename().c_str(), penstock::name_of(why->status),
                    why->text.c_str());
        for (const std::string& cause : why->causes) std::printf("    %s\n", cause.c_str());
        continue;
      }
      const penstock::Result picture = item->job.get();
      std::ofstream(out / file.filename().replace_extension(".ppm"), std::ios::binary) << picture.text();
      ++made;
    }
    std::printf("%zu of %zu thumbnails\n", made, seen);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
