#include "tools/penstock/jobs/command_template.hpp"

#include "runtime/base/text.hpp"

#include <algorithm>
#include <optional>

namespace penstock::cli {
namespace {

using word = std::vector<std::string>;

constexpr std::string_view blanks = " \t\n\r";
// Characters with a meaning in a shell: the first ones anywhere, the others only at the start of a word.
constexpr std::string_view for_shells = "|&;<>()$`*?[";
constexpr std::string_view for_shells_at_first = "~#";
constexpr std::string_view escaped_in_quotes = "\"\\$`";

class splitter {
 public:
  explicit splitter(std::string_view text) : text_(text) {}

  result<std::vector<word>> split() {
    while (at_ < text_.size()) {
      if (auto ok = step(); !ok) return tl::unexpected(std::move(ok.error()));
    }
    end_word();
    return std::move(words_);
  }

 private:
  result<void> step() {
    const char c = text_[at_];
    if (blanks.find(c) != std::string_view::npos) {
      end_word();
      ++at_;
    } else if (c == '\'' || c == '"') {
      return quoted(c);
    } else if (c == '\\') {
      if (at_ + 1 == text_.size())
        return refuse(errc::usage, "the command '{}' ends with a backslash", printable(text_));
      add(text_[at_ + 1]);
      at_ += 2;
    } else if (for_shells.find(c) != std::string_view::npos ||
               (!word_ && for_shells_at_first.find(c) != std::string_view::npos)) {
      return refuse(errc::usage,
                    "the command '{}' runs without a shell: the program would receive the '{}' unchanged; quote it if you mean that, or "
                    "run a shell: sh -c '... \"$1\" ...' sh {{}}",
                    printable(text_), c);
    } else {
      take();
    }
    return {};
  }

  result<void> quoted(char quote) {
    begin_word();  // '' is a word too
    for (++at_; at_ < text_.size();) {
      const char c = text_[at_];
      if (c == quote) {
        ++at_;
        return {};
      }
      if (quote == '"' && c == '\\' && at_ + 1 < text_.size() &&
          escaped_in_quotes.find(text_[at_ + 1]) != std::string_view::npos) {
        add(text_[at_ + 1]);
        at_ += 2;
      } else {
        take();
      }
    }
    return refuse(errc::usage, "a quote ({}) in the command '{}' is not closed", quote, printable(text_));
  }

  /// A literal character, or the item.
  void take() {
    if (text_.substr(at_, 2) == "{}") {
      begin_word().emplace_back();
      at_ += 2;
    } else {
      add(text_[at_++]);
    }
  }

  word& begin_word() {
    if (!word_) word_.emplace(1);
    return *word_;
  }
  void add(char c) { begin_word().back() += c; }
  void end_word() {
    if (word_) words_.push_back(std::move(*word_));
    word_.reset();
  }

  const std::string_view text_;
  std::size_t at_ = 0;
  std::optional<word> word_;
  std::vector<word> words_;
};

}  // namespace

result<command_template> command_template::parse(std::string_view text) {
  auto words = splitter(text).split();
  if (!words) return tl::unexpected(std::move(words.error()));
  if (words->empty() || words->front() == word{""})
    return refuse(errc::usage, "the command names no program");
  if (std::ranges::none_of(*words, [](const word& w) { return w.size() > 1; })) words->emplace_back(2);
  return command_template(std::move(*words));
}

std::vector<std::string> command_template::words_for(std::string_view item) const {
  std::vector<std::string> all;
  all.reserve(words_.size());
  for (const word& w : words_) {
    std::string joined = w.front();
    for (std::size_t i = 1; i < w.size(); ++i) joined.append(item).append(w[i]);
    all.push_back(std::move(joined));
  }
  return all;
}

std::string command_template::program() const {
  return words_.front().size() == 1 ? words_.front().front() : std::string();
}

}  // namespace penstock::cli
