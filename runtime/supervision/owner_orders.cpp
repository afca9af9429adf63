#include "runtime/supervision/owner_orders.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace penstock::supervision {

void owner_orders::order(upload_order upload) {
  if (upload.era != era_) return;
  unsent_.push_back(upload.upload);
  outstanding_.emplace(upload.upload, std::move(upload));
}

std::vector<upload_order> owner_orders::take_unsent() {
  std::vector<upload_order> orders;
  orders.reserve(unsent_.size());
  for (const std::uint64_t upload : std::exchange(unsent_, {})) orders.push_back(outstanding_.at(upload));
  if (orders.empty()) return orders;
  last_sent_ = upload_order{};
  last_sent_->upload = orders.back().upload;
  last_sent_->position = orders.back().position;
  last_sent_->epoch = orders.back().epoch;
  last_sent_->sequence = orders.back().sequence;
  last_sent_->job = orders.back().job;
  return orders;
}

std::optional<std::string> owner_orders::copied(std::uint64_t upload) {
  const bool told = outstanding_.contains(upload) && !std::ranges::binary_search(unsent_, upload);
  if (told && copied_.insert(upload).second) return std::nullopt;
  return fmt::format("it acknowledged a copy of upload {}, which it was not asked to copy", upload);
}

std::optional<std::string> owner_orders::delivered(std::uint64_t upload) {
  if (!copied_.contains(upload))
    return fmt::format("it acknowledged delivery of upload {}, which it has not copied", upload);
  const auto first = outstanding_.begin();
  if (first->first != upload)
    return fmt::format("it acknowledged delivery of upload {} before upload {}", upload, first->first);
  copied_.erase(upload);
  killings_.erase(first->second.position);
  outstanding_.erase(first);
  return std::nullopt;
}

owner_orders::loss owner_orders::lose_owner(suspicion_rule rule, std::optional<std::uint32_t> in_hand) {
  loss result;
  const upload_order* const marked = in_hand ? find_by_mark(*in_hand) : nullptr;
  if (marked != nullptr) {
    result.had = *marked;
  } else if (!outstanding_.empty() && std::ranges::find(unsent_, outstanding_.begin()->first) == unsent_.end()) {
    result.had = outstanding_.begin()->second;
  } else {
    result.had = last_sent_;
  }
  last_sent_.reset();
  if (rule != suspicion_rule::none && marked != nullptr) result.suspect = *marked;
  if (rule == suspicion_rule::in_hand_or_oldest && !result.suspect && !outstanding_.empty())
    result.suspect = outstanding_.begin()->second;
  if (result.suspect) {
    result.proven = ++killings_[result.suspect->position] >= deaths_that_prove;
    if (result.proven) killings_.erase(result.suspect->position);
  }
  outstanding_.clear();
  unsent_.clear();
  copied_.clear();
  result.era = ++era_;
  return result;
}

const upload_order* owner_orders::find(std::uint64_t upload) const {
  const auto it = outstanding_.find(upload);
  return it == outstanding_.end() ? nullptr : &it->second;
}

const upload_order* owner_orders::find_by_mark(std::uint32_t mark) const {
  const auto it = std::ranges::find_if(outstanding_, [&](const auto& e) { return (e.first & generation_mask) == mark; });
  return it == outstanding_.end() ? nullptr : &it->second;
}

std::string describe(const upload_order& batch) {
  if (batch.job) return fmt::format("the result of job {} ({})", batch.position, batch.job->function);
  constexpr std::size_t shown = 8;
  std::string samples;
  for (std::size_t i = 0; i < std::min(shown, batch.samples.size()); ++i)
    samples += fmt::format("{}{}", i == 0 ? "" : ", ", batch.samples[i]);
  if (batch.samples.size() > shown) samples += fmt::format(" and {} more", batch.samples.size() - shown);
  return fmt::format("batch {} of epoch {} (samples {})", batch.sequence, batch.epoch, samples);
}

}  // namespace penstock::supervision
