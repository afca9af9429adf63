// A fake libcuda that records whether it was initialised, and reports one device.
namespace {

bool initialised = false;
constexpr int success = 0;
constexpr int not_initialised = 3;

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int cuInit(unsigned) {
  initialised = true;
  return success;
}

__attribute__((visibility("default"))) int cuDeviceGetCount(int* count) {
  if (!initialised) return not_initialised;
  *count = 1;
  return success;
}
}
