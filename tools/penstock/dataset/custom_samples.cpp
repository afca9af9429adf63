#include "tools/penstock/dataset/custom_samples.hpp"

#include "runtime/base/death_words.hpp"
#include "runtime/schedule/epoch_book.hpp"
#include "tools/penstock/dataset/value_counter.hpp"

#include <penstock/session.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace penstock::inspected {
namespace {

/// Loads every `step`th sample, in order, with the bytes that the worker wrote. A bad sample does not
/// end the session.
config settings_for(config settings, std::uint32_t step) {
  settings.metrics.listen.clear();
  settings.sampler.shuffle = false;
  settings.sampler.drop_last = false;
  settings.sampler.epochs = 1;
  settings.sampler.rank = 0;  // rank 0 of n has every nth sample
  settings.sampler.world_size = step;
  settings.sampler.uneven = uneven_rule::allow;
  settings.loader.on_bad_sample = bad_sample_rule::skip;
  settings.loader.max_failed_fraction = 1;
  settings.loader.hosts = {};  // a running session may listen there
  if (settings.loader.workers == 0) settings.loader.workers.reset();
  settings.quarantine.file.clear();
  settings.quarantine.max_samples = samples_looked_at;
  settings.quarantine.max_fraction = 1;
  settings.gpu.device = "host";
  settings.gpu.placement = placement_rule::embedded;
  settings.gpu.layout = image_layout::nhwc;
  settings.gpu.dtype = dtype::uint8;
  settings.group = {};
  return settings;
}

session_options quiet() {
  session_options options;
  options.control_socket = false;
  return options;
}

void describe_element(inspection& to, const tensor_view& data) {
  to.element = fmt::format("{} [{}]", name_of(data.type),
                           fmt::join(data.shape.begin() + std::min<std::ptrdiff_t>(1, std::ssize(data.shape)),
                                     data.shape.end(), ", "));
}

/// Takes all batches of a session, then its failed samples.
class reader {
 public:
  reader(inspection& to, const progress& told) : to_(to), told_(told) {}

  void take(const Batch& batch, std::uint64_t expected) {
    const tensor_view& data = batch.tensors().front();
    if (!counter_) {
      counter_.emplace(data.type);
      describe_element(to_, data);
    }
    const auto bytes = std::span(static_cast<const std::byte*>(data.data), data.bytes());
    const std::size_t row_bytes = batch.rows() > 0 ? bytes.size() / batch.rows() : 0;
    for (std::size_t row = 0; row < batch.rows(); ++row) {
      std::string odd = counter_->take(bytes.subspan(row * row_bytes, row_bytes));
      if (!odd.empty()) odd_[batch.samples()[row]] = {batch.samples()[row], "", std::move(odd)};
    }
    done_ += batch.rows();
    if (told_) told_(done_, expected);
  }

  void add_losses(const run_report& report) {
    for (const failure_report& f : report.failures) odd_[f.sample] = {f.sample, f.path.value_or(""), f.error};
    for (const quarantine_report& q : report.quarantine) {
      odd_[q.sample] = {q.sample, q.path.value_or(""),
                        fmt::format("it kills the worker ({})", causes_in_words(q.causes))};
    }
    if (report.failures.size() + report.quarantine.size() > 0 && told_) told_(done_, done_);
    for (auto& [sample, one] : odd_) to_.suspicious.push_back(std::move(one));
    if (counter_) to_.values = counter_->summary();
  }

 private:
  inspection& to_;
  const progress& told_;
  std::optional<value_counter> counter_;
  std::map<std::uint64_t, suspicion> odd_;
  std::uint64_t done_ = 0;
};

}  // namespace

result<void> add_custom_samples(inspection& to, const config& settings, const progress& told) {
  try {
    auto session = std::make_unique<Session>(settings_for(settings, 1), quiet());
    auto batch = session->next();
    // The number of samples is not known earlier.
    to.samples = session->status().samples_expected;
    if (const auto state = schedule::parse_state(session->state()))
      to.fingerprint = state->identity.fingerprint;
    if (to.samples > samples_looked_at) {
      batch.reset();
      session.reset();
      const auto step = static_cast<std::uint32_t>((to.samples + samples_looked_at - 1) / samples_looked_at);
      session = std::make_unique<Session>(settings_for(settings, step), quiet());
      batch = session->next();
    }
    reader samples(to, told);
    while (batch) {
      samples.take(*batch, session->status().samples_expected);
      batch.reset();  // return the buffer first
      batch = session->next();
    }
    samples.add_losses(session->report());
    return {};
  } catch (const error& e) {
    return tl::unexpected(e.as_failure());
  }
}

}  // namespace penstock::inspected
