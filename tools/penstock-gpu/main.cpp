// penstock-gpu: the GPU owner in a process of its own. Started by a session whose config says [gpu] placement
// = "process".
#include "actors/gpu_owner/owner_main.hpp"

int main() {
  return penstock::owner_main();
}
