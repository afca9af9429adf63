// penstock-worker: a loader worker with the built-in datasets. Started by a session, or by hand to load single
// samples (--help).
#include "actors/child/child.hpp"
#include "actors/protocol/messages.hpp"
#include "runtime/base/result.hpp"
#include "runtime/dataset/factory.hpp"

#include <penstock/worker.hpp>

#include <cstdio>

namespace {

using namespace penstock;

std::unique_ptr<Dataset> make(const config& settings) {
  if (settings.dataset.type == dataset_type::synthetic) return value_or_throw(make_dataset(settings, -1));
  if (child::has_session()) return value_or_throw(make_dataset(settings, protocol::child_fd::index));
  // Without a session the dataset has not been listed yet.
  const prepared_dataset listed = value_or_throw(prepare_dataset(settings));
  for (const std::string& notice : listed.notices) std::printf("%s\n", notice.c_str());
  return value_or_throw(make_dataset(settings, listed.index.get()));
}

}  // namespace

int main() {
  return penstock::worker_main(make);
}
