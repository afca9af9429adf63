#include "runtime/base/member_choice.hpp"

#include "runtime/base/text.hpp"

#include <algorithm>
#include <array>

namespace penstock {
namespace {

std::string_view trimmed(std::string_view text) noexcept {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  if (text.starts_with('.')) text.remove_prefix(1);
  return text;
}

constexpr std::string_view words_for(member_kind kind) noexcept {
  switch (kind) {
    case member_kind::picture: return "a picture";
    case member_kind::number: return "a number";
    case member_kind::array: return "an array";
    case member_kind::bytes: break;
  }
  return "bytes";
}

bool is_plain_name(std::string_view name) noexcept {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

}  // namespace

member_kind kind_of_extension(std::string_view extension) noexcept {
  const std::size_t dot = extension.rfind('.');
  const std::string_view last = dot == std::string_view::npos ? extension : extension.substr(dot + 1);
  const auto is_one_of = [last](const auto& list) { return std::ranges::find(list, last) != list.end(); };
  if (is_one_of(std::array<std::string_view, 4>{"jpg", "jpeg", "png", "webp"})) return member_kind::picture;
  if (is_one_of(std::array<std::string_view, 7>{"cls", "cls2", "class", "count", "index", "inx", "id"}))
    return member_kind::number;
  return last == "npy" ? member_kind::array : member_kind::bytes;
}

result<member_choice> parse_member_choice(std::string_view tensor, std::string_view extensions) {
  const std::string shown = printable(shortened(tensor, 60));
  if (!is_plain_name(tensor))
    return refuse(errc::config,
                  "'{}' in [dataset.members] is not a valid name for a tensor\nletters, digits and '_' only",
                  shown);
  if (tensor == "crop" || tensor == "flip" || tensor == "index" || tensor.ends_with("_crop") ||
      tensor.ends_with("_length")) {
    return refuse(errc::config,
                  "'{}' in [dataset.members] is the name of a tensor that penstock adds\nchoose another name",
                  shown);
  }
  member_choice choice{std::string(tensor), member_kind::bytes, {}};
  while (true) {
    const std::size_t end = extensions.find(';');
    std::string one(trimmed(extensions.substr(0, end)));
    std::ranges::transform(one, one.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    if (!one.empty()) choice.extensions.push_back(std::move(one));
    if (end == std::string_view::npos) break;
    extensions.remove_prefix(end + 1);
  }
  if (choice.extensions.empty())
    return refuse(errc::config, "'{}' in [dataset.members] names no extension\nwrite one, such as \"cls\"",
                  shown);
  choice.kind = kind_of_extension(choice.extensions.front());
  for (const std::string& other : choice.extensions) {
    if (kind_of_extension(other) == choice.kind) continue;
    return refuse(errc::config,
                  "'{}' in [dataset.members] mixes members of different kinds: '{}' is {}, but '{}' is "
                  "{}\nmust all be of one kind",
                  shown, printable(choice.extensions.front()), words_for(choice.kind), printable(other),
                  words_for(kind_of_extension(other)));
  }
  return choice;
}

result<std::vector<member_choice>> member_choices(const string_map& members) {
  if (members.empty()) return member_choices({{"image", "jpg;jpeg;png;webp"}, {"label", "cls"}});
  std::vector<member_choice> all;
  for (const auto& [tensor, extensions] : members) {
    auto choice = parse_member_choice(tensor, extensions);
    if (!choice) {
      // Joins the lines of the message: only the check of a config shows the second line separately.
      std::ranges::replace(choice.error().message, '\n', ';');
      return tl::unexpected(std::move(choice.error()));
    }
    all.push_back(std::move(*choice));
  }
  return all;
}

const member_choice* class_among(const std::vector<member_choice>& choices) noexcept {
  const member_choice* only = nullptr;
  std::size_t numbers = 0;
  for (const member_choice& one : choices) {
    if (one.kind != member_kind::number) continue;
    if (one.tensor == "label") return &one;
    only = &one;
    ++numbers;
  }
  return numbers == 1 ? only : nullptr;
}

}  // namespace penstock
