#include "actors/remote/host_datasets.hpp"

#include "actors/protocol/config_bytes.hpp"
#include "actors/remote/agreement.hpp"
#include "actors/remote/dataset_program.hpp"
#include "runtime/base/log.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace penstock::hosts {
namespace {

/// Equal for all ranks of a group, because it leaves out the keys in which they differ.
std::string key_of(config here) {
  const config any;
  here.name = any.name;
  here.group = any.group;
  here.sampler.rank = any.sampler.rank;
  here.sampler.world_size = any.sampler.world_size;
  return protocol::config_as_bytes(here);
}

/// The element with this key; adds it if there is none.
template <class Element, class Key>
std::shared_ptr<Element> find_or_add(std::vector<std::shared_ptr<Element>>& all, Key Element::* key, const Key& wanted) {
  const auto found = std::ranges::find_if(all, [&](const auto& one) { return (*one).*key == wanted; });
  if (found != all.end()) return *found;
  auto made = std::make_shared<Element>();
  (*made).*key = wanted;
  return all.emplace_back(std::move(made));
}

}  // namespace

host_datasets::host_datasets(process::io_thread& io, string_map data, own_program program, std::vector<std::string> dataset_program)
    : io_(io), data_(std::move(data)), program_(std::move(program)), dataset_program_(std::move(dataset_program)) {}

result<std::shared_ptr<const ready_dataset>> host_datasets::prepare(const session_offer& offer) {
  std::shared_ptr<entry> mine;
  std::uint32_t failures = 0;
  {
    const std::lock_guard hold(mutex_);
    mine = find_or_add(entries_, &entry::offer, offer);
    failures = mine->failures;
  }
  const std::lock_guard one_makes_it(mine->making);
  if (mine->made) return mine->made;
  if (mine->failures != failures) return tl::unexpected(mine->last_failure);  // another connection failed while this one waited
  auto made = make(offer);
  const std::lock_guard hold(mutex_);  // forget_unused() reads it
  if (made) {
    mine->made = *made;
  } else {
    ++mine->failures;
    mine->last_failure = made.error();
  }
  return made;
}

result<std::shared_ptr<const ready_dataset>> host_datasets::make(const session_offer& offer) {
  auto settings = protocol::config_from_bytes(offer.config);
  if (!settings) return tl::unexpected(std::move(settings.error()));
  if (!offer.program.empty()) {
    auto program = program_for(offer, settings->loader.start_method == start_method_rule::from_template);
    if (!program) return tl::unexpected(std::move(program.error()));
    const hosts_config& rules = settings->loader.hosts;
    return std::make_shared<ready_dataset>(
        ready_dataset{offer.config, {}, rules.lost_after, rules.drain, rules.wait, compress_rule::none, std::move(*program)});
  }
  auto here = config_on_host(std::move(*settings), data_);
  if (!here) return tl::unexpected(std::move(here.error()));
  if (auto ok = check_lists(*here, data_); !ok) return tl::unexpected(std::move(ok.error()));
  if (auto packs = packer::open(here->loader.hosts.compress); !packs) return tl::unexpected(std::move(packs.error()));
  const hosts_config& rules = here->loader.hosts;
  auto made = std::make_shared<ready_dataset>(
      ready_dataset{protocol::config_as_bytes(*here), {}, rules.lost_after, rules.drain, rules.wait, rules.compress, {}});
  if (is_custom(*here)) {
    if (auto ok = describe(*here, *made); !ok) return tl::unexpected(std::move(ok.error()));
    return made;
  }
  auto listed = list(*here);
  if (!listed) return tl::unexpected(std::move(listed.error()));
  made->dataset = std::move(*listed);
  return made;
}

/// Runs the program again for every session: only the program can tell whether its data has changed.
result<void> host_datasets::describe(const config& here, ready_dataset& made) {
  auto described = describe_custom_on_host(here, dataset_program_, data_, &given_up_);
  if (!described) return tl::unexpected(std::move(described.error()));
  prepared_dataset dataset;
  dataset.description = std::move(described->dataset);
  made.dataset = std::make_shared<const prepared_dataset>(std::move(dataset));
  made.command = dataset_program_;
  made.command.front() = described->file.path;
  made.facts = std::move(described->facts);
  made.file = std::move(described->file);
  return {};
}

result<std::shared_ptr<const prepared_dataset>> host_datasets::list(const config& here) {
  std::shared_ptr<listing> mine;
  {
    const std::lock_guard hold(mutex_);
    mine = find_or_add(listings_, &listing::key, key_of(here));
  }
  const std::lock_guard one_lists(mine->making);
  if (mine->made) return mine->made;
  auto listed = prepare_dataset(here, {}, here.image.decoder);
  if (!listed) return tl::unexpected(std::move(listed.error()));
  for (const std::string& notice : listed->notices) log::warn("dataset", "{}", notice);
  const std::lock_guard hold(mutex_);  // forget_unused() reads it
  mine->made = std::make_shared<const prepared_dataset>(std::move(*listed));
  return mine->made;
}

result<std::shared_ptr<host_program>> host_datasets::program_for(const session_offer& offer, bool forks) {
  if (!offer.encrypted)
    return refuse(errc::config, "the session sends {} code over a connection without a secret, which a host does not run", offer.program);
  if (!data_.empty())
    return refuse(errc::config, "the session sends {} code, which could read anything, but --data allows some folders only", offer.program);
  if (program_.kind != offer.program)
    return refuse(errc::config, "the session's workers are {} programs, but this host has none: start it as `python -m penstock host`",
                  offer.program);
  return host_program::make(io_, program_, offer.code, offer.marks_bytes, forks);
}

void host_datasets::forget_unused() {
  std::vector<std::shared_ptr<entry>> dropped;  // destroyed without the lock
  const std::lock_guard hold(mutex_);
  const auto is_used = [](const std::shared_ptr<entry>& one) { return one.use_count() > 1 || one->made.use_count() > 1; };
  const auto unused = std::ranges::stable_partition(entries_, is_used);
  dropped.assign(std::make_move_iterator(unused.begin()), std::make_move_iterator(unused.end()));
  entries_.erase(unused.begin(), unused.end());
  const auto last = listings_.empty() ? nullptr : listings_.back();
  std::erase_if(listings_, [&](const std::shared_ptr<listing>& one) {
    const bool used_by_entry = std::ranges::any_of(entries_, [&](const auto& of) { return of->made && of->made->dataset == one->made; });
    return one != last && one.use_count() == 1 && one->made.use_count() <= 1 && !used_by_entry;
  });
}

}  // namespace penstock::hosts
