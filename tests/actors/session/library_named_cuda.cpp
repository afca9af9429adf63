// Built as a libcuda.so.1 that does nothing: workers check only the name.
extern "C" int cuInit(unsigned) {
  return 0;
}
