/* What the compiler's static C++ runtime takes from a C library newer than the one that releases are linked against
 * (tools/release-sysroot). Hidden: each program and library has its own. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

/* 2.32: false makes reference counts atomic, always. */
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;

/* 2.36: std::random_device. */
__attribute__((visibility("hidden"))) uint32_t arc4random(void) {
  uint32_t value;
  while (getrandom(&value, sizeof value, 0) != sizeof value) {
    if (errno != EINTR) abort();
  }
  return value;
}
