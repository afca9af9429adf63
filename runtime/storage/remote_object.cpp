#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/storage/object_store.hpp"

#include <algorithm>
#include <cerrno>

namespace penstock {
namespace {

/// Gaps up to this size between expected ranges are also fetched, because this saves a request.
constexpr std::uint64_t gap_max = 64 * KiB;
constexpr std::uint64_t piece_bytes_max = 8 * MiB;

}  // namespace

remote_object::remote_object(std::shared_ptr<object_store> store, std::string path, object_facts facts)
    : store_(std::move(store)), path_(std::move(path)), facts_(std::move(facts)) {}

remote_object::~remote_object() {
  store_->remove_unread(this);
}

/// If the object's version is unknown, a cached copy could be of a different version.
bool remote_object::may_be_cached() const noexcept {
  return store_->cache_ && !facts_.tag.empty();
}

/// The cache files are opened for each use: a dataset may have more objects than a
/// process may have open files.
std::unique_ptr<cached_object> remote_object::cached() const {
  if (!may_be_cached()) return nullptr;
  return store_->cache_->object(name_in_cache(path_, facts_), facts_.bytes);
}

byte_range remote_object::aligned(byte_range range) const noexcept {
  if (!may_be_cached()) return range;
  const std::uint64_t begin = range.at / cache_block * cache_block;
  const std::uint64_t end = std::min(facts_.bytes, round_up(range.at + range.bytes, cache_block));
  return {begin, end - begin};
}

transfers::ticket remote_object::start(byte_range range) const {
  auto request = store_->request_for(path_);
  if (!request) return nullptr;
  request->range = range;
  request->expected_tag = facts_.tag;
  request->is_whole = is_whole(range);
  return store_->transfers_->start(std::move(*request));
}

result<transfer_answer> remote_object::answer_to(const transfers::ticket& ticket) {
  if (!ticket) return refuse(errc::io, "cannot be requested: its address, or AWS_ENDPOINT_URL, is not a URL");
  auto answer = store_->transfers_->wait(ticket);
  if (!answer && answer.error().code == errc::dataset)
    return refuse(errc::io,
                  "changed since it was indexed (its ETag or modification time is different): start the session again "
                  "when it is complete");
  if (answer && answer->object_bytes != facts_.bytes)
    return refuse(errc::io, "changed since it was indexed ({} bytes then, {} now): start the session again when it is complete",
                  facts_.bytes, answer->object_bytes);
  return answer;
}

result<std::vector<std::byte>> remote_object::finish(byte_range range, transfers::ticket ticket) {
  constexpr int tries_max = 3;
  for (int tries = 1;; ++tries) {
    auto answer = answer_to(ticket);
    if (!answer) return tl::unexpected(std::move(answer.error()));
    const auto wrong = is_whole(range) ? store_->wrong_sum(*answer) : std::nullopt;
    if (!wrong) {
      if (const auto copy = cached()) copy->keep(range.at, answer->body);
      return std::move(answer->body);
    }
    if (tries == tries_max)
      return refuse_os(errc::io, EIO, fmt::format("arrives damaged: {} times, its {} did not match the one from the store ({})", tries,
                                                  name_of(wrong->kind), printable(shortened(wrong->text, 64))));
    ticket = start(range);
  }
}

void remote_object::expect(std::vector<byte_range> ranges) {
  const auto copy = cached();
  std::erase_if(ranges, [&](const byte_range& one) { return one.bytes == 0 || (copy && copy->has(one.at, one.bytes)); });
  std::ranges::sort(ranges, {}, &byte_range::at);
  std::vector<std::shared_ptr<piece>> made;
  for (const byte_range& one : ranges) {
    if (!made.empty()) {
      byte_range& last = made.back()->range;
      const std::uint64_t end = std::max(last.at + last.bytes, one.at + one.bytes);
      if (one.at <= last.at + last.bytes + gap_max && end - last.at <= piece_bytes_max) {
        last.bytes = end - last.at;
        made.back()->awaits.push_back(one);
        continue;
      }
    }
    made.push_back(std::make_shared<piece>());
    made.back()->range = one;
    made.back()->awaits.push_back(one);
  }
  if (made.empty()) return;
  const steady_time now = std::chrono::steady_clock::now();
  store_->forget_unread(now);
  for (const auto& one : made) {
    one->expected = now;
    one->range = aligned(one->range);
    one->ticket = start(one->range);
  }
  const std::lock_guard lock(mutex_);
  for (const auto& one : made) {
    longest_ = std::max(longest_, one->range.bytes);
    pieces_.emplace(one->range.at, one);
  }
  store_->add_unread(this, weak_from_this());
}

void remote_object::forget_unread(steady_time expected_until) {
  const std::lock_guard lock(mutex_);
  std::erase_if(pieces_, [&](const auto& one) { return one.second->expected <= expected_until; });
  if (pieces_.empty()) store_->remove_unread(this);
}

/// If several pieces have the same beginning, takes the one that was requested first: the others
/// may be for the next epoch.
std::multimap<std::uint64_t, std::shared_ptr<remote_object::piece>>::iterator remote_object::piece_with(byte_range range) {
  const auto covers = [&](const auto& one) {
    const byte_range& has = one.second->range;
    return range.at + range.bytes <= has.at + has.bytes;
  };
  for (auto end = pieces_.upper_bound(range.at); end != pieces_.begin();) {
    const auto begin = pieces_.lower_bound(std::prev(end)->first);
    if (const auto found = std::find_if(begin, end, covers); found != end) return found;
    if (range.at - begin->first > longest_) break;
    end = begin;
  }
  return pieces_.end();
}

/// Marks a range of the piece as read. If this exact range was not expected, marks another expected
/// range of the piece instead.
void remote_object::take_from(std::multimap<std::uint64_t, std::shared_ptr<piece>>::iterator one, byte_range range) {
  auto& awaits = one->second->awaits;
  const auto itself = std::ranges::find(awaits, range);
  awaits.erase(itself != awaits.end() ? itself : awaits.end() - 1);
  if (awaits.empty()) pieces_.erase(one);
  if (pieces_.empty()) store_->remove_unread(this);
}

void remote_object::drop(byte_range range) {
  const std::lock_guard lock(mutex_);
  for (auto next = pieces_.upper_bound(range.at); next != pieces_.begin();) {
    --next;
    if (range.at - next->first > longest_) return;
    if (std::ranges::find(next->second->awaits, range) != next->second->awaits.end()) return take_from(next, range);
  }
}

/// Returns false if the range was not expected or could not be fetched. The caller then requests it.
bool remote_object::read_expected(std::uint64_t at, std::span<std::byte> into) {
  std::shared_ptr<piece> found;
  {
    const std::lock_guard lock(mutex_);
    const auto one = piece_with({at, into.size()});
    if (one == pieces_.end()) return false;
    found = one->second;
    take_from(one, {at, into.size()});
  }
  const std::lock_guard taking(found->taking);
  if (!found->contents) {
    auto contents = finish(found->range, found->ticket);
    if (!contents) {
      const std::lock_guard lock(mutex_);
      std::erase_if(pieces_, [&](const auto& one) { return one.second == found; });
      return false;
    }
    found->contents = std::make_shared<const std::vector<std::byte>>(std::move(*contents));
  }
  std::ranges::copy(std::span(*found->contents).subspan(at - found->range.at, into.size()), into.begin());
  return true;
}

result<void> remote_object::read(std::uint64_t at, std::span<std::byte> into) {
  if (into.empty()) return {};
  if (at + into.size() > facts_.bytes) return refuse(errc::io, "ends at byte {}, but bytes {} to {} were requested", facts_.bytes, at, at + into.size());
  if (read_expected(at, into)) return {};
  if (const auto copy = cached(); copy && copy->read(at, into)) return {};
  const byte_range range = aligned({at, into.size()});
  auto contents = finish(range, start(range));
  if (!contents) return tl::unexpected(std::move(contents.error()));
  std::ranges::copy(std::span(*contents).subspan(at - range.at, into.size()), into.begin());
  return {};
}

}  // namespace penstock
