#include "runtime/schedule/partition_book.hpp"

#include "runtime/base/text.hpp"

#include <fmt/ranges.h>

#include <algorithm>

namespace penstock::schedule {
namespace {

std::string fingerprint_in_words(const served_dataset& of) {
  const std::string& hash = of.dataset.fingerprint;
  const std::string& own = of.own_fingerprint;
  return own.empty() || own == hash ? hash : fmt::format("{} (its author's '{}')", hash, printable(own));
}

std::string difference(const served_dataset& known, const served_dataset& said) {
  const dataset_description& a = known.dataset;
  const dataset_description& b = said.dataset;
  if (a.type != b.type) return fmt::format("type {} and {}", a.type, b.type);
  if (a.samples != b.samples) return fmt::format("{} and {} samples", a.samples, b.samples);
  if (a.tensors != b.tensors) return "different tensors";
  return fmt::format("fingerprints {} and {}", fingerprint_in_words(known), fingerprint_in_words(said));
}

std::string in_words(const served_functions& of) {
  return of.names.empty() ? std::string("none") : fmt::format("{}", fmt::join(of.names, ", "));
}

result<void> same(worker_ref who, const served_dataset& known, const served_dataset& said) {
  if (known.dataset == said.dataset) return {};
  return refuse(errc::protocol, "worker {} sees a different dataset than the session: {}", who.worker, difference(known, said));
}

result<void> same(worker_ref who, const served_functions& known, const served_functions& said) {
  if (known == said) return {};
  return refuse(errc::worker_program,
                "worker {} serves different functions than the first worker: {} instead of {}; was its program replaced in the "
                "meantime?",
                who.worker, in_words(said), in_words(known));
}

}  // namespace

partition_book::partition_book(work_kind work, std::optional<dataset_description> expected) : work_(work) {
  if (expected) known_ = served_dataset{std::move(*expected), {}};
}

result<void> partition_book::check(worker_ref who, const served& said) const {
  if (work_ == work_kind::samples && !std::holds_alternative<served_dataset>(said))
    return refuse(errc::worker_program,
                  "the worker program ([loader] command) serves functions of a pool (penstock::job_main), not a dataset "
                  "(penstock::worker_main)");
  if (work_ != work_kind::samples && !std::holds_alternative<served_functions>(said))
    return refuse(errc::worker_program,
                  "the worker program loads a dataset (penstock::worker_main); a pool needs one that serves functions "
                  "(penstock::job_main): see [loader] command");
  if (!known_) return {};
  if (const auto* dataset = std::get_if<served_dataset>(&said)) return same(who, std::get<served_dataset>(*known_), *dataset);
  return same(who, std::get<served_functions>(*known_), std::get<served_functions>(said));
}

std::vector<partition_command> partition_book::described(worker_ref who, result<served> said) {
  if (failed_) return {refuse_slots{who}};
  if (!said) return failed(who, std::move(said.error()));
  if (auto* functions = std::get_if<served_functions>(&*said)) std::ranges::sort(functions->names);
  if (auto ok = check(who, *said); !ok) return failed(who, std::move(ok.error()));
  std::vector<partition_command> commands;
  if (!std::exchange(adopted_, true)) {
    known_ = *said;
    commands.emplace_back(adopt_served{std::move(*said)});
  }
  if (prepared_.insert(who.worker).second) commands.emplace_back(prepare_partition{who.worker});
  commands.emplace_back(give_slots{who});
  return commands;
}

std::vector<partition_command> partition_book::failed(worker_ref who, failure why) {
  std::vector<partition_command> commands;
  if (!std::exchange(failed_, true)) commands.emplace_back(fail_run{std::move(why)});
  commands.emplace_back(refuse_slots{who});
  return commands;
}

}  // namespace penstock::schedule
