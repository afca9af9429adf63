#include "runtime/group/collective_messages.hpp"

#include <utility>

namespace penstock::group {
namespace {

class writer {
 public:
  void number(std::uint64_t value, unsigned bytes) {
    for (unsigned i = 0; i < bytes; ++i) text_.push_back(static_cast<char>((value >> (8 * i)) & 0xffU));
  }
  void bytes(const std::string& value) {
    number(value.size(), 4);
    text_.append(value);
  }
  [[nodiscard]] std::string done() { return std::move(text_); }

 private:
  std::string text_;
};

class reader {
 public:
  explicit reader(std::string_view text) : rest_(text) {}

  std::uint64_t number(unsigned bytes, std::uint64_t most) {
    const std::string_view raw = take(bytes);
    std::uint64_t value = 0;
    for (unsigned i = 0; i < raw.size(); ++i)
      value |= std::uint64_t{static_cast<unsigned char>(raw[i])} << (8 * i);
    if (value > most) good_ = false;
    return good_ ? value : 0;
  }
  collective_kind kind() {
    return static_cast<collective_kind>(number(1, static_cast<std::uint64_t>(collective_kind::all_gather)));
  }
  std::string bytes(std::size_t most) { return std::string(take(number(4, most))); }
  /// A count of elements that have at least `each` bytes.
  std::uint64_t count(std::uint64_t most, std::size_t each) {
    const std::uint64_t many = number(4, most);
    if (many > rest_.size() / each) good_ = false;
    return good_ ? many : 0;
  }
  [[nodiscard]] bool good() const noexcept { return good_; }
  [[nodiscard]] bool done() const noexcept { return good_ && rest_.empty(); }

 private:
  std::string_view take(std::size_t size) {
    if (size > rest_.size()) good_ = false;
    if (!good_) return {};
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  std::string_view rest_;
  bool good_ = true;
};

constexpr std::uint64_t any = ~std::uint64_t{0};

}  // namespace

/// FNV-1a over lengths and bytes. Never 0.
std::uint64_t digest_of(const collective_result& result) noexcept {
  std::uint64_t sum = 0xcbf29ce484222325;
  const auto add = [&sum](std::uint64_t byte) { sum = (sum ^ byte) * 0x100000001b3; };
  for (const std::string& value : result.values) {
    add(value.size());
    for (const char c : value) add(static_cast<unsigned char>(c));
  }
  return sum | 1U;
}

std::string encode(const collective_report& report) {
  writer to;
  to.number(report.done, 8);
  to.number(report.digest, 8);
  to.number(report.words.size(), 4);
  for (const collective_word& word : report.words) {
    to.number(word.number, 8);
    to.number(static_cast<std::uint64_t>(word.what), 1);
    to.bytes(word.value);
  }
  return to.done();
}

std::string encode(const collective_answer& answer) {
  writer to;
  to.number(answer.not_entered.size(), 4);
  for (const std::uint32_t rank : answer.not_entered) to.number(rank, 4);
  to.number(answer.result ? 1 : 0, 1);
  if (!answer.result) return to.done();
  to.number(answer.result->number, 8);
  to.number(static_cast<std::uint64_t>(answer.result->what), 1);
  to.number(answer.result->values.size(), 4);
  for (const std::string& value : answer.result->values) to.bytes(value);
  return to.done();
}

result<collective_report> decode_collective_report(std::string_view bytes, std::uint32_t world_size) {
  reader from(bytes);
  collective_report report;
  report.done = from.number(8, any);
  report.digest = from.number(8, any);
  const std::uint64_t words = from.count(collective_words_max, 13);
  for (std::uint64_t i = 0; i < words && from.good(); ++i) {
    collective_word& word = report.words.emplace_back();
    word.number = from.number(8, any);
    word.what = from.kind();
    word.value = from.bytes(collective_bytes_max(world_size));
  }
  if (!from.done()) return refuse(errc::protocol, "its report on collective operations is corrupt");
  return report;
}

result<collective_answer> decode_collective_answer(std::string_view bytes, std::uint32_t world_size) {
  reader from(bytes);
  collective_answer answer;
  const std::uint64_t ranks = from.count(world_size, 4);
  for (std::uint64_t i = 0; i < ranks && from.good(); ++i)
    answer.not_entered.push_back(static_cast<std::uint32_t>(from.number(4, world_size)));
  if (from.number(1, 1) == 1) {
    auto made = std::make_shared<collective_result>();
    made->number = from.number(8, any);
    made->what = from.kind();
    const std::uint64_t values = from.count(world_size, 4);
    for (std::uint64_t i = 0; i < values && from.good(); ++i)
      made->values.push_back(from.bytes(collective_bytes_max(world_size)));
    if (values != world_size) return refuse(errc::protocol, "{} values for {} ranks", values, world_size);
    answer.result = std::move(made);
  }
  if (!from.done()) return refuse(errc::protocol, "the result of a collective operation is corrupt");
  return answer;
}

}  // namespace penstock::group
