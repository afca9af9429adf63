// penstock-sample-photos FOLDER COUNT: like `penstock sample-photos`, for tests and benchmarks.
#include "tools/sample-photos/sample_photos.hpp"

#include <charconv>
#include <cstdio>
#include <cstring>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: penstock-sample-photos FOLDER COUNT\n");
    return 2;
  }
  int count = 0;
  const char* const end = argv[2] + std::strlen(argv[2]);
  const auto [rest, status] = std::from_chars(argv[2], end, count);
  if (status != std::errc{} || rest != end || count < 1 || count > penstock::sample_photos_max) {
    std::fprintf(stderr, "penstock-sample-photos: '%s' photographs: must be a whole number from 1 to %d\n", argv[2], penstock::sample_photos_max);
    return 2;
  }
  const auto unwritten = penstock::draw_sample_photos(argv[1], count);
  if (!unwritten) return 0;
  std::fprintf(stderr, "penstock-sample-photos: writing %s: %s\n", unwritten->file.c_str(), std::strerror(unwritten->os_code));
  return 1;
}
