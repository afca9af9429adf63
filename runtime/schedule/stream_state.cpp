// Encodes states of a stream, and checks whether a state belongs to a stream.
#include "runtime/base/check.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/schedule/epoch_book.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

namespace penstock::schedule {
namespace {

constexpr std::uint64_t magic_1 = 0x31'45'54'41'54'53'53'50;  // "PSSTATE1"
constexpr std::uint64_t magic_2 = 0x32'45'54'41'54'53'53'50;  // "PSSTATE2"
constexpr std::uint64_t magic_3 = 0x33'45'54'41'54'53'53'50;  // "PSSTATE3"
constexpr std::uint64_t magic_4 = 0x34'45'54'41'54'53'53'50;  // "PSSTATE4"

// Layout of a version 4 state. Numbers take 8 bytes; strings are preceded by their length.
//
//   magic, seed, batch size, rank, world size, flags
//   fingerprint, settings
//   start (not in version 2), epoch, next batch, delivered, failed, quarantined
//   early batches, and a list of their digests (only in version 4)
//   digests: their count, the accumulators, the words that are kept
//   quarantined samples: bytes, and ranges as pairs of variable-length numbers (gap before it, length - 1)
//   checksum
constexpr std::size_t number_bytes = sizeof(std::uint64_t);
constexpr std::size_t numbers_before = 6;
constexpr std::size_t numbers_of_the_epoch = 6;
constexpr std::size_t accumulators = 8;
constexpr std::size_t bytes_beside_quarantine =
    number_bytes * (numbers_before + 1 + 1 + numbers_of_the_epoch + 1 + accumulators +
                    digest_chain::words_kept_max + 1 + 1) +
    fingerprint_bytes_max + identity_settings_bytes_max;
static_assert(bytes_beside_quarantine + 64 <= strict_state_bytes_max, "there is room for at least a dozen ranges");

// The largest count accepted: larger than any stream needs, but small enough that sums and products
// of counts do not overflow.
constexpr std::uint64_t count_max = std::uint64_t{1} << 62U;

// Flags. The flags for `uneven` are 0 in states of earlier versions, which knew only `allow`.
constexpr std::uint64_t flag_shuffle = 1;
constexpr std::uint64_t flag_drop_last = 2;
constexpr std::uint64_t flag_pad = 4;
constexpr std::uint64_t flag_drop = 8;
constexpr std::uint64_t flag_of_group = 16;
constexpr std::uint64_t flags_of_version_2 = flag_shuffle | flag_drop_last;
constexpr std::uint64_t flags_known = flags_of_version_2 | flag_pad | flag_drop | flag_of_group;

/// The longest list accepted in a version 1 state.
constexpr std::uint64_t list_max = std::uint64_t{1} << 32;

class writer {
 public:
  void number(std::uint64_t value) { append(&value, sizeof value); }
  void list(const std::vector<std::uint64_t>& values) {
    number(values.size());
    append(values.data(), values.size() * number_bytes);
  }
  void text(std::string_view value) {
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
  std::uint32_t number_of_32_bits() {
    const std::uint64_t value = number();
    if (value > std::numeric_limits<std::uint32_t>::max()) good_ = false;
    return static_cast<std::uint32_t>(value);
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
    if (count > 0) std::memcpy(to, rest_.data(), count);  // an empty list has no memory
    rest_ = rest_.subspan(count);
  }
  std::span<const std::byte> rest_;
  bool good_ = true;
};

/// FNV-1a, which is enough to detect a truncated or edited file.
std::uint64_t checksum(std::span<const std::byte> bytes) {
  std::uint64_t sum = 0xcbf29ce484222325;
  for (const std::byte b : bytes) sum = (sum ^ static_cast<std::uint64_t>(b)) * 0x100000001b3;
  return sum;
}

void append_short(std::string& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7U) to.push_back(static_cast<char>((value & 0x7FU) | 0x80U));
  to.push_back(static_cast<char>(value));
}

std::optional<std::uint64_t> take_short(std::string_view& from) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64 && !from.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(from.front());
    from.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7FU) << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

/// Encodes ascending samples as ranges, and stops when no more fit.
std::string as_ranges(const std::vector<std::uint64_t>& samples, std::size_t bytes_max) {
  std::string ranges;
  std::uint64_t behind = 0;  // the first sample after the range just written
  for (std::size_t first = 0; first < samples.size();) {
    std::size_t last = first;
    while (last + 1 < samples.size() && samples[last + 1] == samples[last] + 1) ++last;
    std::string one;
    append_short(one, samples[first] - behind);
    append_short(one, last - first);
    if (ranges.size() + one.size() > bytes_max) break;
    ranges += one;
    behind = samples[last] + 1;
    first = last + 1;
  }
  return ranges;
}

std::optional<std::vector<std::uint64_t>> from_ranges(std::string_view ranges) {
  std::vector<std::uint64_t> samples;
  std::uint64_t behind = 0;
  while (!ranges.empty()) {
    const auto gap = take_short(ranges);
    const auto more = take_short(ranges);
    // More than are quarantined in practice. [quarantine] max_samples has no upper limit, but a forged state
    // must not exhaust memory.
    constexpr std::uint64_t samples_max = std::uint64_t{1} << 24U;
    if (!gap || !more || *gap > count_max || behind > count_max || *more >= samples_max - samples.size())
      return std::nullopt;
    for (std::uint64_t i = 0; i <= *more; ++i) samples.push_back(behind + *gap + i);
    behind += *gap + *more + 1;
  }
  return samples;
}

tl::unexpected<failure> not_a_state(std::string_view why) {
  return refuse(errc::state_mismatch, "this is not a saved state: {}", why);
}

/// Reads a version 1 state, in which the digests are a list.
void read_lists(reader& in, stream_state& s) {
  for (const std::uint64_t digest : in.list()) s.digests.add(digest);
  s.quarantined_samples = in.list();
  in.list();  // failed samples are not needed, because they will fail again
}

result<void> read_chain(reader& in, stream_state& s) {
  const std::uint64_t count = in.number();
  std::array<std::uint64_t, accumulators> lanes{};
  for (std::uint64_t& lane : lanes) lane = in.number();
  std::vector<std::uint64_t> words(digest_chain::words_kept_after(count));
  for (std::uint64_t& word : words) word = in.number();
  auto chain = digest_chain::restore(count, lanes, words);
  if (!chain) return not_a_state("its digest does not match its number of batches");
  s.digests = *chain;
  auto samples = from_ranges(in.text());
  if (!samples) return not_a_state("its quarantined samples are invalid");
  s.quarantined_samples = std::move(*samples);
  return {};
}

/// The checksum detects accidental damage; this detects a forged state.
result<void> check_counts(const stream_state& s) {
  const stream_identity& id = s.identity;
  if (id.batch_size == 0)
    return not_a_state("its batch size is 0 (was it saved before its stream was open?); start without it");
  if (id.fingerprint.size() > fingerprint_bytes_max || id.settings.size() > identity_settings_bytes_max)
    return not_a_state("its fingerprint or its settings are too long");
  if (id.world_size == 0 || id.rank >= id.world_size)
    return not_a_state(fmt::format("its rank is {} of {}", id.rank, id.world_size));
  if (s.start > count_max) return not_a_state(fmt::format("it is at position {}", s.start));
  if (id.of_group && s.next_batch != 0) return not_a_state("it is the state of a group, but counts batches");
  if (s.epoch > count_max || s.next_batch > count_max / id.batch_size / id.world_size)
    return not_a_state(fmt::format("it is at batch {} of epoch {}", s.next_batch, s.epoch));
  const auto early = static_cast<std::uint64_t>(std::popcount(s.early));
  if (!s.early_digests.empty() && s.early_digests.size() != early)
    return not_a_state(fmt::format("it has {} digests for {} early batches", s.early_digests.size(), early));
  if (early > 0 && id.of_group) return not_a_state("it is the state of a group, but counts early batches");
  const std::uint64_t most = (s.next_batch + early) * id.batch_size;
  if (s.delivered > most || s.failed > most - s.delivered || s.quarantined > most - s.delivered - s.failed) {
    return not_a_state(
        fmt::format("it counts {} delivered, {} failed and {} quarantined samples in {} batches of {}",
                    s.delivered, s.failed, s.quarantined, s.next_batch + early, id.batch_size));
  }
  if (s.digests.count() > s.next_batch)
    return not_a_state(fmt::format("it has {} digests for {} batches", s.digests.count(), s.next_batch));
  return {};
}

std::uint64_t flags_of(const stream_identity& id) {
  std::uint64_t flags = 0;
  if (id.shuffle) flags |= flag_shuffle;
  if (id.drop_last) flags |= flag_drop_last;
  if (id.uneven == uneven_rule::pad) flags |= flag_pad;
  if (id.uneven == uneven_rule::drop) flags |= flag_drop;
  if (id.of_group) flags |= flag_of_group;
  return flags;
}

void read_flags(std::uint64_t flags, stream_identity& id) {
  id.shuffle = (flags & flag_shuffle) != 0;
  id.drop_last = (flags & flag_drop_last) != 0;
  id.uneven = (flags & flag_pad) != 0    ? uneven_rule::pad
              : (flags & flag_drop) != 0 ? uneven_rule::drop
                                         : uneven_rule::allow;
  id.of_group = (flags & flag_of_group) != 0;
}

/// "key=value" lines as pairs.
std::vector<std::pair<std::string_view, std::string_view>> settings_of(std::string_view text) {
  std::vector<std::pair<std::string_view, std::string_view>> all;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::size_t mark = std::min(line.find('='), line.size());
    all.emplace_back(line.substr(0, mark), line.substr(std::min(line.size(), mark + 1)));
  }
  return all;
}

constexpr std::size_t differences_told = 4;

std::string_view value_of(const std::vector<std::pair<std::string_view, std::string_view>>& settings,
                          std::string_view key) {
  for (const auto& [name, value] : settings) {
    if (name == key) return value;
  }
  return "unset";
}

}  // namespace

std::vector<std::byte> serialise(const stream_state& s) {
  PENSTOCK_CHECK(s.identity.fingerprint.size() <= fingerprint_bytes_max &&
                     s.identity.settings.size() <= identity_settings_bytes_max,
                 "fingerprint '{}', settings '{}'", s.identity.fingerprint, s.identity.settings);
  const std::uint64_t flags = flags_of(s.identity);
  // Use the first version that can express the state, so that earlier versions of the program can read it.
  const bool fourth = s.early != 0;
  const bool second = !fourth && s.start == 0 && (flags & ~flags_of_version_2) == 0;
  writer out;
  out.number(second ? magic_2 : fourth ? magic_4 : magic_3);
  out.number(s.identity.seed);
  out.number(s.identity.batch_size);
  out.number(s.identity.rank);
  out.number(s.identity.world_size);
  out.number(flags);
  out.text(s.identity.fingerprint);
  out.text(s.identity.settings);
  if (!second) out.number(s.start);
  out.number(s.epoch);
  out.number(s.next_batch);
  out.number(s.delivered);
  out.number(s.failed);
  out.number(s.quarantined);
  const std::size_t before = out.bytes.size();
  if (fourth) {
    out.number(s.early);
    out.list(s.early_digests);
  }
  const std::size_t of_early = out.bytes.size() - before;
  out.number(s.digests.count());
  for (const std::uint64_t lane : s.digests.accumulators()) out.number(lane);
  for (const std::uint64_t word : s.digests.words_kept()) out.number(word);
  const std::size_t around = out.bytes.size() + number_bytes /* of the text */ + number_bytes /* checksum */;
  out.text(as_ranges(s.quarantined_samples, strict_state_bytes_max + of_early - around));
  out.number(checksum(out.bytes));
  return std::move(out.bytes);
}

result<stream_state> parse_state(std::span<const std::byte> bytes) {
  if (bytes.size() < 2 * sizeof(std::uint64_t)) return not_a_state("it is too short");
  reader in(bytes.first(bytes.size() - sizeof(std::uint64_t)));
  const std::uint64_t version = in.number();
  if (version != magic_1 && version != magic_2 && version != magic_3 && version != magic_4)
    return not_a_state("its first bytes are not those of a state that this version can read");
  std::uint64_t sum = 0;
  std::memcpy(&sum, bytes.data() + bytes.size() - sizeof sum, sizeof sum);
  if (sum != checksum(bytes.first(bytes.size() - sizeof sum)))
    return not_a_state("its checksum is wrong: it was truncated or changed");
  stream_state s;
  s.identity.seed = in.number();
  s.identity.batch_size = in.number_of_32_bits();
  s.identity.rank = in.number_of_32_bits();
  s.identity.world_size = in.number_of_32_bits();
  const std::uint64_t flags = in.number();
  const bool has_start = version == magic_3 || version == magic_4;
  if ((flags & ~(has_start ? flags_known : flags_of_version_2)) != 0)
    return not_a_state("it has settings that are unknown to this version");
  read_flags(flags, s.identity);
  s.identity.fingerprint = in.text();
  s.identity.has_settings = version != magic_1;
  if (s.identity.has_settings) s.identity.settings = in.text();
  if (has_start) s.start = in.number();
  s.epoch = in.number();
  s.next_batch = in.number();
  s.delivered = in.number();
  s.failed = in.number();
  s.quarantined = in.number();
  if (version == magic_4) {
    s.early = in.number();
    s.early_digests = in.list();
  }
  if (version == magic_1) {
    read_lists(in, s);
  } else if (auto ok = read_chain(in, s); !ok) {
    return tl::unexpected(std::move(ok.error()));
  }
  if (!in.good() || !in.at_end())
    return not_a_state("the lengths of its parts do not add up to its own length");
  if (auto ok = check_counts(s); !ok) return tl::unexpected(std::move(ok.error()));
  return s;
}

result<void> check_same_stream(const stream_identity& saved, const stream_identity& now) {
  std::string differences;
  std::size_t count = 0;
  const auto compare = [&](std::string_view what, const auto& a, const auto& b) {
    if (a == b || ++count > differences_told) return;
    differences += fmt::format("{}{} was {} and is {}", differences.empty() ? "" : ", ", what, a, b);
  };
  // The dataset comes first: if it differs, most other settings differ, too. Its fingerprint is empty in a state saved
  // before any worker had described it.
  if (!saved.fingerprint.empty()) compare("the dataset's fingerprint", saved.fingerprint, now.fingerprint);
  compare("seed", saved.seed, now.seed);
  if (!saved.of_group) {
    compare("batch_size", saved.batch_size, now.batch_size);
    compare("rank", saved.rank, now.rank);
    compare("world_size", saved.world_size, now.world_size);
    if (saved.world_size == now.world_size) compare("uneven", name_of(saved.uneven), name_of(now.uneven));
  }
  compare("shuffle", saved.shuffle, now.shuffle);
  compare("drop_last", saved.drop_last, now.drop_last);
  // Before a worker has described the dataset, a state has no settings, and nothing has been delivered.
  if (!saved.fingerprint.empty()) {
    const auto before = settings_of(saved.settings);
    const auto after = settings_of(now.settings);
    for (const auto& [key, value] : before) compare(key, value, value_of(after, key));
    for (const auto& [key, value] : after) {
      // A state of version 1 does not say how it makes pictures. It is older than all orders but the default.
      if (value_of(before, key) == "unset" && (saved.has_settings || key == "order")) compare(key, "unset", value);
    }
  }
  if (count == 0) return {};
  if (count > differences_told)
    differences += fmt::format(", and {}", counted(count - differences_told, "more difference"));
  return refuse(errc::state_mismatch, "the saved state belongs to another stream: {}", differences);
}

result<void> check_position(const stream_state& saved, const stream_shape& shape) {
  const std::uint64_t per_epoch = shape.batches_per_epoch;
  if (per_epoch == 0 && saved.epoch == 0 && saved.next_batch == 0) return {};
  const std::uint64_t batches = shape.batches_of(saved.epoch);
  // If a stream enters an epoch in the middle, the rest may be too small for a batch.
  // Then the next epoch starts.
  const bool behind = saved.next_batch >= batches && (saved.next_batch > 0 || saved.start == 0);
  const auto last_early = static_cast<std::uint64_t>(std::bit_width(saved.early));
  if (!behind && saved.early != 0 && last_early >= batches - saved.next_batch) {
    return refuse(errc::state_mismatch,
                  "the saved state has delivered batch {} of epoch {}, but an epoch has {}",
                  saved.next_batch + last_early, saved.epoch, counted(batches, "batch", "batches"));
  }
  if (per_epoch == 0 || behind || saved.epoch >= count_max / per_epoch) {
    return refuse(errc::state_mismatch, "the saved state is at batch {} of epoch {}, but an epoch has {}",
                  saved.next_batch, saved.epoch, counted(batches, "batch", "batches"));
  }
  return {};
}

}  // namespace penstock::schedule
