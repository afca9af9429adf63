// penstock-worker: a loader worker with the built-in datasets. Started by a session, or by hand to load
// single samples (--help). With --commands: the worker of a pool whose jobs are command lines (`penstock map
// --command`).
#include "actors/child/child.hpp"
#include "actors/job_worker/command.hpp"
#include "actors/protocol/command_job.hpp"
#include "actors/protocol/messages.hpp"
#include "runtime/base/result.hpp"
#include "runtime/dataset/factory.hpp"

#include <penstock/job.hpp>
#include <penstock/worker.hpp>

#include <cstdio>
#include <string_view>

namespace {

using namespace penstock;

std::unique_ptr<Dataset> make(const config& settings) {
  if (settings.datasets.empty() && settings.dataset.type == dataset_type::synthetic)
    return value_or_throw(make_dataset(settings, -1));
  if (child::has_session()) {
    const bool device_decodes = settings.image.decoder != decoder_rule::cpu;  // only with a single image folder
    return value_or_throw(make_dataset(
        settings, child::indexes(device_decodes ? 2 : settings.datasets.size()), settings.image.decoder));
  }
  // Without a session the dataset has not been listed yet.
  const prepared_dataset listed = value_or_throw(prepare_dataset(settings));
  for (const std::string& notice : listed.notices) std::printf("%s\n", notice.c_str());
  return value_or_throw(make_dataset(settings, listed.descriptors()));
}

}  // namespace

int main(int count, char** arguments) {
  if (count > 1 && std::string_view(arguments[1]) == "--commands")
    return penstock::job_main({{penstock::protocol::command_function, penstock::job_worker::run_command}});
  return penstock::worker_main(make);
}
