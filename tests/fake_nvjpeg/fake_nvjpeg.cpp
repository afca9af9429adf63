// A stand-in for libnvjpeg in tests of machines whose nvJPEG is too old or damaged. Opened through PENSTOCK_NVJPEG. It decodes nothing.
// FAKE_NVJPEG_VERSION, such as "11.9.0", is the version that it reports; without it, the version cannot be queried.
#include <cstdio>
#include <cstdlib>

extern "C" __attribute__((visibility("default"))) int nvjpegGetProperty(int which, int* value) {
  int version[3] = {};
  const char* const text = std::getenv("FAKE_NVJPEG_VERSION");
  if (text == nullptr || std::sscanf(text, "%d.%d.%d", &version[0], &version[1], &version[2]) != 3) return 1;
  *value = version[which];
  return 0;
}
