#include "runtime/group/collective_book.hpp"

#include "runtime/base/counted.hpp"

#include <fmt/core.h>

#include <utility>

namespace penstock::group {

void collective_book::heard(std::uint32_t rank, const collective_report& report, bool leaves) {
  member& m = ranks_.at(rank);
  m.said = report;
  m.leaves = leaves;
  compare(rank);
  if (wrong_) return;
  if (const collective_word* const in = m.waits_in()) {
    if (results_.size() == collective_words_max && in->number < results_.begin()->first) {
      return disagree(rank, fmt::format("is in collective operation {}, {}, but the group has completed {}: "
                                        "a restarted program must say how many it has completed",
                                        in->number, name_of(in->what), results_.rbegin()->first));
    }
  }
  for (const collective_word& one : m.said.words) complete(one.number);
  for (std::uint32_t other = 0; other < ranks_.size(); ++other) {
    if (other == rank) continue;
    find_missing_for(rank, other);
    find_missing_for(other, rank);
  }
}

void collective_book::replaced(std::uint32_t rank) {
  ranks_.at(rank) = {};
}

/// Ranks disagree if their operations with the same number differ.
void collective_book::compare(std::uint32_t rank) {
  for (const collective_word& own : ranks_[rank].said.words) {
    for (std::uint32_t other = 0; other < ranks_.size(); ++other) {
      const collective_word* const theirs = other == rank ? nullptr : ranks_[other].word(own.number);
      if (theirs == nullptr || theirs->what == own.what) continue;
      disagree(rank, fmt::format("its collective operation {} is {}, but that of rank {} is {}", own.number,
                                 name_of(own.what), other, name_of(theirs->what)));
    }
  }
}

void collective_book::complete(std::uint64_t number) {
  if (results_.contains(number)) return;
  if (results_.size() == collective_words_max && number < results_.begin()->first) return;
  auto result = std::make_shared<collective_result>();
  for (const member& m : ranks_) {
    const collective_word* const word = m.word(number);
    if (word == nullptr) return;
    result->number = number;
    result->what = word->what;
    result->values.push_back(word->value);
  }
  // A restarted coordinator may find a rank with a result from the previous coordinator.
  const std::uint64_t digest = digest_of(*result);
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    const collective_report& said = ranks_[rank].said;
    if (said.done != number || said.digest == 0 || said.digest == digest) continue;
    disagree(rank, fmt::format("would get a different result from collective operation {} than the other ranks: a "
                               "program that enters an operation again must pass the same bytes",
                               number));
    return;
  }
  results_.emplace(number, std::move(result));
  if (results_.size() > collective_words_max) results_.erase(results_.begin());
}

/// Whether `other` will never enter the operation in which `waiting` waits.
void collective_book::find_missing_for(std::uint32_t waiting, std::uint32_t other) {
  const collective_word* const in = ranks_[waiting].waits_in();
  const member& m = ranks_[other];
  if (in == nullptr || results_.contains(in->number) || m.word(in->number) != nullptr) return;
  if (m.said.done >= in->number || (!m.said.words.empty() && m.said.words.front().number > in->number)) {
    const std::uint64_t at = m.said.words.empty() ? m.said.done : m.said.words.back().number;
    return disagree(waiting,
                    fmt::format("is in collective operation {}, {}, but rank {} has completed that and is at "
                                "{}: a restarted program must say how many it has completed",
                                in->number, name_of(in->what), other, at));
  }
  if (m.leaves) {
    disagree(other, fmt::format("left the group after {}, but rank {} has begun number {}, {}",
                                counted(m.said.done, "collective operation"), waiting, in->number,
                                name_of(in->what)));
  }
}

void collective_book::disagree(std::uint32_t rank, std::string what) {
  if (!wrong_) wrong_ = disagreement{rank, std::move(what)};
}

shared_collective_result collective_book::answer_for(std::uint32_t rank) const {
  const collective_word* const in = ranks_.at(rank).waits_in();
  if (in == nullptr) return nullptr;
  const auto found = results_.find(in->number);
  return found == results_.end() ? nullptr : found->second;
}

std::vector<std::uint32_t> collective_book::awaited_by(std::uint32_t rank) const {
  std::vector<std::uint32_t> missing;
  const collective_word* const in = ranks_.at(rank).waits_in();
  if (in == nullptr || results_.contains(in->number)) return missing;
  for (std::uint32_t other = 0; other < ranks_.size(); ++other) {
    if (ranks_[other].word(in->number) == nullptr) missing.push_back(other);
  }
  return missing;
}

}  // namespace penstock::group
