#include "runtime/dataset/listing/path_pattern.hpp"

#include "runtime/base/number.hpp"
#include "runtime/base/text.hpp"

#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <optional>

namespace penstock {
namespace {

constexpr std::size_t names_max = 1'000'000;

bool has_wildcard(std::string_view text) noexcept {
  return text.find_first_of("*?[") != std::string_view::npos;
}

bool exists(const std::string& path) {
  struct ::stat facts {};
  return ::stat(path.c_str(), &facts) == 0;
}

/// The positions of the brace that closes the one at `open`, and of the commas between them at the same depth.
struct brace_group {
  std::size_t close;
  std::vector<std::size_t> commas;
};

std::optional<brace_group> group_at(std::string_view text, std::size_t open) {
  brace_group group{};
  unsigned depth = 0;
  for (std::size_t i = open; i < text.size(); ++i) {
    if (text[i] == '{') ++depth;
    if (text[i] == ',' && depth == 1) group.commas.push_back(i);
    if (text[i] == '}' && --depth == 0) {
      group.close = i;
      return group;
    }
  }
  return std::nullopt;
}

/// The numbers of "000..127" or "0..9..3"; empty if it is not a range.
result<std::optional<std::vector<std::string>>> range_of(std::string_view text) {
  const std::size_t first_dots = text.find("..");
  if (first_dots == std::string_view::npos) return std::nullopt;
  const std::string_view low = text.substr(0, first_dots);
  std::string_view high = text.substr(first_dots + 2);
  std::int64_t step = 1;
  if (const std::size_t dots = high.find(".."); dots != std::string_view::npos) {
    const auto given = whole_number<std::int64_t>(high.substr(dots + 2));
    if (!given || *given == 0 || *given < -1'000'000'000 || *given > 1'000'000'000) return std::nullopt;
    step = *given < 0 ? -*given : *given;
    high = high.substr(0, dots);
  }
  const auto from = whole_number<std::int64_t>(low);
  const auto to = whole_number<std::int64_t>(high);
  constexpr std::int64_t number_max = 1'000'000'000'000;
  if (!from || !to || *from < 0 || *to < 0 || *from > number_max || *to > number_max) return std::nullopt;
  const std::uint64_t count = static_cast<std::uint64_t>(std::abs(*to - *from) / step) + 1;
  if (count > names_max)
    return refuse(errc::dataset, "'{{{}}}' expands to {} names: at most {} are allowed", text, count,
                  names_max);
  const bool padded = (low.size() > 1 && low.front() == '0') || (high.size() > 1 && high.front() == '0');
  const std::size_t width = padded ? std::max(low.size(), high.size()) : 0;
  std::vector<std::string> names;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::int64_t number = *from + (*to < *from ? -1 : 1) * static_cast<std::int64_t>(i) * step;
    names.push_back(fmt::format("{:0{}}", number, width));
  }
  return names;
}

result<std::vector<std::string>> choices_of(std::string_view text, std::size_t open,
                                            const brace_group& group) {
  std::vector<std::string> choices;
  if (group.commas.empty()) {
    auto range = range_of(text.substr(open + 1, group.close - open - 1));
    if (!range) return tl::unexpected(range.error());
    if (*range) choices = std::move(**range);
    return choices;
  }
  std::size_t begin = open + 1;
  for (std::size_t i = 0; i <= group.commas.size(); ++i) {
    const std::size_t end = i < group.commas.size() ? group.commas[i] : group.close;
    auto inner = expand_braces(text.substr(begin, end - begin));
    if (!inner) return inner;
    choices.insert(choices.end(), inner->begin(), inner->end());
    begin = end + 1;
  }
  return choices;
}

result<std::vector<std::string>> matches_of(const std::string& pattern, std::string_view what) {
  ::glob_t found{};
  const int status = ::glob(pattern.c_str(), GLOB_ERR | GLOB_NOSORT, nullptr, &found);
  const int os_code = errno;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < found.gl_pathc; ++i) names.emplace_back(found.gl_pathv[i]);
  ::globfree(&found);
  if (status == GLOB_NOSPACE)
    return refuse(errc::out_of_memory, "looking for {}s '{}'", what, printable(pattern));
  if (status == GLOB_ABORTED)
    return refuse_os(errc::io, os_code, fmt::format("a folder of '{}' cannot be read", printable(pattern)));
  std::ranges::sort(names);
  return names;
}

}  // namespace

bool is_pattern(std::string_view path) noexcept {
  return path.find_first_of("{*?[") != std::string_view::npos;
}

result<std::vector<std::string>> expand_braces(std::string_view pattern) {
  // Only nested braces recurse: choices_of expands what is inside a pair.
  constexpr std::size_t pattern_max = 64 * 1024;
  if (pattern.size() > pattern_max)
    return refuse(errc::dataset, "a pattern of {} characters is too long", pattern.size());
  std::vector<std::string> all{""};
  std::size_t plain = 0;
  for (std::size_t open = pattern.find('{'); open != std::string_view::npos;
       open = pattern.find('{', open + 1)) {
    const auto group = group_at(pattern, open);
    if (!group) break;
    const auto choices = choices_of(pattern, open, *group);
    if (!choices) return choices;
    if (choices->empty()) continue;
    if (all.size() * choices->size() > names_max)
      return refuse(errc::dataset, "'{}' expands to more than {} names", printable(pattern), names_max);
    std::vector<std::string> longer;
    for (const std::string& begin : all)
      for (const std::string& choice : *choices)
        longer.push_back(begin + std::string(pattern.substr(plain, open - plain)) + choice);
    all = std::move(longer);
    plain = group->close + 1;
    open = group->close;
  }
  for (std::string& one : all) one += pattern.substr(plain);
  return all;
}

std::string folder_of_pattern(const std::string& path) {
  struct ::stat facts {};
  if (::stat(path.c_str(), &facts) == 0) {
    if (S_ISDIR(facts.st_mode)) return path.ends_with('/') ? path.substr(0, path.size() - 1) : path;
    const std::size_t slash = path.rfind('/');
    return slash == std::string::npos ? "." : path.substr(0, slash);
  }
  const std::size_t slash = path.substr(0, path.find_first_of("{*?[")).rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

result<std::vector<std::string>> paths_of_pattern(const std::string& path, std::string_view what) {
  if (exists(path)) return std::vector{path};
  auto expanded = expand_braces(path);
  if (!expanded) return expanded;
  std::vector<std::string> names;
  for (const std::string& one : *expanded) {
    if (!has_wildcard(one) || (one != path && exists(one))) {
      names.push_back(one);
      continue;
    }
    auto found = matches_of(one, what);
    if (!found) return found;
    if (found->empty()) return refuse(errc::dataset, "no {} is named '{}'", what, printable(one));
    names.insert(names.end(), found->begin(), found->end());
  }
  return names;
}

}  // namespace penstock
