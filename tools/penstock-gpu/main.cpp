// penstock-gpu: the GPU owner in its own process. Started by a session with [gpu] placement = "process".
#include "actors/gpu_owner/owner_main.hpp"

int main() {
  return penstock::owner_main();
}
