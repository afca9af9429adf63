// Stands in for the driver's libcuda.so.1 on machines without one: workers must not load a library of that
// name.
extern "C" __attribute__((visibility("default"))) int cuInit(unsigned) {
  return 3;  // CUDA_ERROR_NOT_INITIALIZED, as after a fork
}
