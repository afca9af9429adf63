#include "tools/penstock/dataset/tar_inspection.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/base/layout.hpp"
#include "runtime/dataset/factory.hpp"
#include "runtime/dataset/tar/tar_index.hpp"
#include "tools/penstock/dataset/value_counter.hpp"

#include <penstock/random.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

namespace penstock::inspected {
namespace {

/// Loads a share of the samples. Each thread has one, with a separate dataset object.
class sample_loader {
 public:
  sample_loader(const config& settings, int index, const dataset_description& described)
      : seed_(settings.sampler.seed),
        described_(described),
        dataset_(value_or_throw(make_dataset(settings, index))) {
    for (const tensor_spec& spec : described_.tensors) memory_.emplace_back(bytes_of(spec));
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      spans_.emplace_back(memory_[i]);
      const tensor_spec& spec = described_.tensors[i];
      lengths_.push_back({0, spec.length == length_rule::exact ? 0 : spec.shape.front()});
    }
  }

  /// Why the sample cannot be loaded; empty if it can.
  std::string trouble_of(std::uint64_t sample) {
    random_source random(seed_, 0, sample);
    try {
      dataset_->load({sample, 0, 1, random}, sample_slot(spans_, lengths_, described_.tensors));
      return {};
    } catch (const std::exception& e) {
      return e.what();
    }
  }
  [[nodiscard]] std::string name_of(std::uint64_t sample) const { return dataset_->name_of(sample); }

 private:
  std::uint64_t seed_;
  const dataset_description& described_;
  std::unique_ptr<Dataset> dataset_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::span<std::byte>> spans_;
  std::vector<sample_length> lengths_;
};

void load_spread(inspection& to, const config& settings, const prepared_dataset& prepared, unsigned threads,
                 const progress& told) {
  const std::uint64_t samples = prepared.description.samples;
  const std::uint64_t tries = std::min(samples, samples_looked_at);
  std::atomic<std::uint64_t> next{0};
  std::mutex mutex;  // guards `to` and `done`, and calls to `told`
  std::uint64_t done = 0;
  {
    std::vector<std::jthread> pool;
    for (unsigned t = 0; t < std::max(threads, 1U); ++t) {
      // Opened here: an exception in the thread would end the process.
      auto opened = std::make_unique<sample_loader>(settings, prepared.index.get(), prepared.description);
      pool.emplace_back([&, loader = std::move(opened)] {
        for (std::uint64_t i = next++; i < tries; i = next++) {
          const std::uint64_t sample = i * samples / tries;
          const std::string trouble = loader->trouble_of(sample);
          const std::lock_guard lock(mutex);
          if (!trouble.empty()) to.suspicious.push_back({sample, loader->name_of(sample), trouble});
          if (told && ++done % 256 == 0) told(done, tries);
        }
      });
    }
  }
  std::ranges::sort(to.suspicious, {}, &suspicion::sample);
  if (told) told(tries, tries);
}

std::string tensors_for_people(const dataset_description& described) {
  std::string text;
  for (const tensor_spec& spec : described.tensors) {
    if (spec.role == tensor_role::record) continue;
    text += fmt::format("{}{} {} [{}{}]", text.empty() ? "" : ", ", spec.name, name_of(spec.type),
                        spec.length == length_rule::exact ? "" : "up to ", fmt::join(spec.shape, ", "));
  }
  return text;
}

}  // namespace

result<void> add_tar(inspection& to, const config& settings, unsigned threads, const progress& told) {
  auto prepared = prepare_dataset(settings);
  if (!prepared) return tl::unexpected(std::move(prepared.error()));
  to.samples = prepared->description.samples;
  to.fingerprint = prepared->description.fingerprint;
  to.notices = prepared->notices;
  to.element = tensors_for_people(prepared->description);
  const auto index = tar_index::map(prepared->index.get());
  if (!index) return tl::unexpected(index.error());
  std::map<std::string, std::uint64_t> members;
  for (std::uint64_t i = 0; i < index->shards(); ++i) {
    const indexed_shard shard = index->shard(i);
    to.bytes += shard.file_bytes;
    to.files.push_back({std::string(shard.name), shard.samples, shard.file_bytes});
    if (shard.samples == 0) to.notices.push_back(fmt::format("'{}' holds no samples", shard.name));
    for (const indexed_extension& one : index->extensions(i)) members[std::string(one.text)] += one.members;
  }
  std::vector<std::pair<std::uint64_t, std::string>> by_count;
  for (const auto& [text, count] : members) by_count.emplace_back(count, text);
  std::ranges::sort(by_count, std::greater());
  constexpr std::size_t shown = 12;
  std::string list;
  for (std::size_t i = 0; i < std::min(shown, by_count.size()); ++i)
    list += fmt::format("{}.{} {}", list.empty() ? "" : ", ", by_count[i].second, by_count[i].first);
  to.notices.push_back(
      fmt::format("members by extension: {}{}", list, by_count.size() > shown ? ", ..." : ""));
  load_spread(to, settings, *prepared, threads, told);
  return {};
}

}  // namespace penstock::inspected
