// Loaded (LD_PRELOAD) into the ranks of `penstock launch FILE` by pause_test.py. In the first process of rank
// PENSTOCK_TEST_STUCK_RANK:
//   PENSTOCK_TEST_STUCK_AT = "start"    it hangs before its first line
//   PENSTOCK_TEST_STUCK_AT = "actors"   its actors' threads stop at their next wait, once the file PENSTOCK_TEST_STUCK_FILE
//                                       exists; all other threads continue
#include <dlfcn.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace {

bool is_chosen(const char* place) {
  const char* const at = std::getenv("PENSTOCK_TEST_STUCK_AT");
  const char* const chosen = std::getenv("PENSTOCK_TEST_STUCK_RANK");
  const char* const rank = std::getenv("RANK");
  const char* const starts = std::getenv("PENSTOCK_GROUP_STARTS");
  return at != nullptr && chosen != nullptr && rank != nullptr && starts != nullptr &&
         std::strcmp(at, place) == 0 && std::strcmp(chosen, rank) == 0 && std::strcmp(starts, "0") == 0 &&
         std::getenv("PENSTOCK_LAUNCH_CHANNEL") != nullptr;  // the session's process, but not its children
}

bool actors_stop = false;  // set before there is a second thread

void stop_if_ours() {
  if (!actors_stop) return;
  char name[16] = {};
  ::prctl(PR_GET_NAME, name);
  const bool runs_actors = std::strncmp(name, "caf.", 4) == 0;
  if (!runs_actors || ::access(std::getenv("PENSTOCK_TEST_STUCK_FILE"), F_OK) != 0) return;
  while (true) ::pause();
}

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

[[gnu::constructor]] void begin() {
  actors_stop = is_chosen("actors");
  if (!is_chosen("start")) return;
  while (true) ::pause();
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
  static const auto real = next<int (*)(pthread_mutex_t*)>("pthread_mutex_unlock");
  const int done = real(mutex);
  stop_if_ours();
  return done;
}
