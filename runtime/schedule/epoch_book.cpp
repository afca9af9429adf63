#include "runtime/schedule/epoch_book.hpp"

#include "runtime/base/check.hpp"

#include <cstring>

namespace penstock::schedule {
namespace {

constexpr std::uint64_t magic = 0x31'45'54'41'54'53'53'50;  // "PSSTATE1"
constexpr std::uint64_t list_max = std::uint64_t{1} << 32;

class writer {
 public:
  void number(std::uint64_t value) { append(&value, sizeof value); }
  void list(const std::vector<std::uint64_t>& values) {
    number(values.size());
    append(values.data(), values.size() * sizeof(std::uint64_t));
  }
  void text(const std::string& value) {
    number(value.size());
    append(value.data(), value.size());
  }
  std::vector<std::byte> bytes;

 private:
  void append(const void* from, std::size_t count) {
    const auto* first = static_cast<const std::byte*>(from);
    bytes.insert(bytes.end(), first, first + count);
  }
};

class reader {
 public:
  explicit reader(std::span<const std::byte> from) : rest_(from) {}
  std::uint64_t number() {
    std::uint64_t value = 0;
    take(&value, sizeof value);
    return value;
  }
  std::vector<std::uint64_t> list() {
    const std::uint64_t count = number();
    if (count > list_max || count * sizeof(std::uint64_t) > rest_.size()) {
      good_ = false;
      return {};
    }
    std::vector<std::uint64_t> values(count);
    take(values.data(), count * sizeof(std::uint64_t));
    return values;
  }
  std::string text() {
    const std::uint64_t count = number();
    if (count > rest_.size()) {
      good_ = false;
      return {};
    }
    std::string value(count, '\0');
    take(value.data(), count);
    return value;
  }
  [[nodiscard]] bool good() const { return good_; }
  [[nodiscard]] bool at_end() const { return rest_.empty(); }

 private:
  void take(void* to, std::size_t count) {
    if (count > rest_.size()) {
      good_ = false;
      return;
    }
    std::memcpy(to, rest_.data(), count);
    rest_ = rest_.subspan(count);
  }
  std::span<const std::byte> rest_;
  bool good_ = true;
};

/// FNV-1a: enough against a file that was cut or edited.
std::uint64_t checksum(std::span<const std::byte> bytes) {
  std::uint64_t sum = 0xcbf29ce484222325;
  for (const std::byte b : bytes) sum = (sum ^ static_cast<std::uint64_t>(b)) * 0x100000001b3;
  return sum;
}

}  // namespace

std::vector<std::byte> serialise(const stream_state& s) {
  writer out;
  out.number(magic);
  out.number(s.identity.seed);
  out.number(s.identity.batch_size);
  out.number(s.identity.rank);
  out.number(s.identity.world_size);
  out.number((s.identity.shuffle ? 1U : 0U) | (s.identity.drop_last ? 2U : 0U));
  out.text(s.identity.fingerprint);
  out.number(s.epoch);
  out.number(s.next_batch);
  out.number(s.delivered);
  out.number(s.failed);
  out.number(s.quarantined);
  out.list(s.batch_digests);
  out.list(s.quarantined_samples);
  out.list(s.failed_samples);
  out.number(checksum(out.bytes));
  return std::move(out.bytes);
}

result<stream_state> parse_state(std::span<const std::byte> bytes) {
  const auto no = [](const char* why) {
    return refuse(errc::state_mismatch, "this is not a saved state: {}", why);
  };
  if (bytes.size() < 2 * sizeof(std::uint64_t)) return no("it is too short");
  reader in(bytes.first(bytes.size() - sizeof(std::uint64_t)));
  if (in.number() != magic) return no("it does not begin like one of this version");
  std::uint64_t sum = 0;
  std::memcpy(&sum, bytes.data() + bytes.size() - sizeof sum, sizeof sum);
  if (sum != checksum(bytes.first(bytes.size() - sizeof sum)))
    return no("its checksum is wrong, it was cut or changed");
  stream_state s;
  s.identity.seed = in.number();
  s.identity.batch_size = static_cast<std::uint32_t>(in.number());
  s.identity.rank = static_cast<std::uint32_t>(in.number());
  s.identity.world_size = static_cast<std::uint32_t>(in.number());
  const std::uint64_t flags = in.number();
  s.identity.shuffle = (flags & 1U) != 0;
  s.identity.drop_last = (flags & 2U) != 0;
  s.identity.fingerprint = in.text();
  s.epoch = in.number();
  s.next_batch = in.number();
  s.delivered = in.number();
  s.failed = in.number();
  s.quarantined = in.number();
  s.batch_digests = in.list();
  s.quarantined_samples = in.list();
  s.failed_samples = in.list();
  if (!in.good() || !in.at_end()) return no("its parts do not fit its length");
  return s;
}

result<void> check_same_stream(const stream_identity& saved, const stream_identity& now) {
  std::string differences;
  const auto compare = [&](const char* what, const auto& a, const auto& b) {
    if (a != b)
      differences += fmt::format("{}{} was {} and is {}", differences.empty() ? "" : ", ", what, a, b);
  };
  compare("seed", saved.seed, now.seed);
  compare("batch_size", saved.batch_size, now.batch_size);
  compare("rank", saved.rank, now.rank);
  compare("world_size", saved.world_size, now.world_size);
  compare("shuffle", saved.shuffle, now.shuffle);
  compare("drop_last", saved.drop_last, now.drop_last);
  compare("the dataset's fingerprint", saved.fingerprint, now.fingerprint);
  if (differences.empty()) return {};
  return refuse(errc::state_mismatch, "the saved state belongs to another stream: {}", differences);
}

epoch_book::epoch_book(stream_identity identity, std::uint64_t batches_per_epoch,
                       std::uint64_t samples_per_epoch)
    : identity_(std::move(identity)),
      batches_per_epoch_(batches_per_epoch),
      samples_per_epoch_(samples_per_epoch) {}

void epoch_book::resume(const stream_state& state) {
  next_ = state.epoch * batches_per_epoch_ + state.next_batch;
  accounts_.clear();
  if (state.next_batch == 0) return;
  epoch_account& open = open_account(state.epoch, state.next_batch);
  open.delivered = state.delivered;
  open.failed = state.failed;
  open.quarantined = state.quarantined;
  open.batches = state.next_batch;
  open.batch_digests = state.batch_digests;
}

void epoch_book::begin_at(stream_position position) {
  next_ = position;
}

epoch_account& epoch_book::open_account(std::uint64_t epoch, std::uint64_t from_batch) {
  if (!accounts_.empty() && accounts_.back().epoch == epoch && !accounts_.back().complete)
    return accounts_.back();
  accounts_.push_back({});
  accounts_.back().epoch = epoch;
  accounts_.back().from_batch = from_batch;
  accounts_.back().expected = samples_per_epoch_;
  return accounts_.back();
}

void epoch_book::delivered(stream_position position, std::uint64_t rows, std::uint64_t failed,
                           std::uint64_t quarantined, std::optional<std::uint64_t> digest) {
  PENSTOCK_CHECK(position == next_, "position {} follows {}", position, next_);
  epoch_account& open = open_account(position / batches_per_epoch_, position % batches_per_epoch_);
  open.delivered += rows;
  open.failed += failed;
  open.quarantined += quarantined;
  ++open.batches;
  if (digest) open.batch_digests.push_back(*digest);
  // An epoch that was entered in the middle without a state is never complete.
  open.complete = open.batches == batches_per_epoch_;
  ++next_;
}

stream_state epoch_book::state() const {
  stream_state s;
  s.identity = identity_;
  s.epoch = batches_per_epoch_ == 0 ? 0 : next_ / batches_per_epoch_;
  s.next_batch = batches_per_epoch_ == 0 ? 0 : next_ % batches_per_epoch_;
  if (s.next_batch == 0 || accounts_.empty() || accounts_.back().epoch != s.epoch) return s;
  const epoch_account& open = accounts_.back();
  s.delivered = open.delivered;
  s.failed = open.failed;
  s.quarantined = open.quarantined;
  s.batch_digests = open.batch_digests;
  return s;
}

}  // namespace penstock::schedule
