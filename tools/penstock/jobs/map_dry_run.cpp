#include "tools/penstock/jobs/map_dry_run.hpp"

#include "runtime/base/shell_words.hpp"
#include "tools/penstock/jobs/job_outcome.hpp"

#include <fmt/core.h>

namespace penstock::cli {

std::string words_as_json(std::uint64_t index, const std::vector<std::string>& words) {
  std::string list;
  for (const std::string& word : words) list += (list.empty() ? "" : ",") + json_string(word);
  return fmt::format(R"({{"index":{},"words":[{}]}})", index, list);
}

result<void> dry_run(line_source& input, const work& what, const dry_run_rules& rules,
                     const std::function<void(const std::string&)>& print) {
  while (true) {
    const auto line = input.next();
    if (!line) return tl::unexpected(line.error());
    if (!*line) return {};
    const std::uint64_t index = (*line)->number - 1;
    if (rules.journal != nullptr) {
      const auto known = rules.journal->find(index);
      if (!known) return tl::unexpected(known.error());
      if (*known && !(rules.retry_failed && (*known)->status != job_status::ok)) continue;
    }
    if (const std::string why = why_bad(what.lines(), (*line)->text); !why.empty()) {
      if (rules.bad_lines == bad_line_rule::skip) continue;
      return refuse(errc::io, "line {} of {} {}", (*line)->number, input.name(), why);
    }
    const std::vector<std::string> words = what.words_for((*line)->text);
    print(rules.as_json ? words_as_json(index, words) : shell_words(words));
  }
}

}  // namespace penstock::cli
