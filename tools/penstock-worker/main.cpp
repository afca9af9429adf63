// penstock-worker: a loader worker with the built-in datasets. Started by a session.
#include "actors/protocol/messages.hpp"
#include "runtime/base/result.hpp"
#include "runtime/dataset/factory.hpp"

#include <penstock/worker.hpp>

int main() {
  return penstock::worker_main([](const penstock::config& settings) {
    const bool indexed = settings.dataset.type != penstock::dataset_type::synthetic;
    return penstock::value_or_throw(
        penstock::make_dataset(settings, indexed ? penstock::protocol::child_fd::index : -1));
  });
}
