// Stands in for the driver's libcuda.so.1 where there is none: a library of that name is what a worker must
// not load.
extern "C" __attribute__((visibility("default"))) int cuInit(unsigned) {
  return 3;  // CUDA_ERROR_NOT_INITIALIZED, as after a fork
}
