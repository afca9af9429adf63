// penstock-sample-photos FOLDER COUNT: like `penstock sample-photos`, for tests and benchmarks.
#include "runtime/base/number.hpp"
#include "tools/sample-photos/sample_photos.hpp"

#include <cstdio>
#include <cstring>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: penstock-sample-photos FOLDER COUNT\n");
    return 2;
  }
  const int count = penstock::whole_number<int>(argv[2]).value_or(0);
  if (count < 1 || count > penstock::sample_photos_max) {
    std::fprintf(stderr, "penstock-sample-photos: '%s' photographs: must be a whole number from 1 to %d\n", argv[2], penstock::sample_photos_max);
    return 2;
  }
  const auto unwritten = penstock::draw_sample_photos(argv[1], count);
  if (!unwritten) return 0;
  std::fprintf(stderr, "penstock-sample-photos: writing %s: %s\n", unwritten->file.c_str(), std::strerror(unwritten->os_code));
  return 1;
}
