#include "runtime/config/interpolation.hpp"

#include "runtime/base/text.hpp"

#include <fmt/core.h>

#include <cctype>

namespace penstock::config_file {
namespace {

std::string_view variable_name_at(std::string_view text) {
  std::size_t length = 0;
  while (length < text.size() &&
         (std::isalnum(static_cast<unsigned char>(text[length])) != 0 || text[length] == '_')) {
    ++length;
  }
  return text.substr(0, length);
}

class expander {
 public:
  expander(std::string_view text, const reference_values& values, const std::filesystem::path& folder,
           reference_scope scope)
      : text_(text), values_(values), folder_(folder), scope_(scope) {}

  expansion run() {
    while (at_ < text_.size()) {
      const std::size_t dollar = text_.find('$', at_);
      made_.text += text_.substr(at_, dollar - at_);
      if (dollar == std::string_view::npos) break;
      at_ = dollar + 2;
      const char next = dollar + 1 < text_.size() ? text_[dollar + 1] : '\0';
      if (next == '$') {
        made_.text += '$';
      } else if (next == '{') {
        reference(dollar);
      } else {
        lone_dollar(dollar);
      }
    }
    return std::move(made_);
  }

 private:
  void refuse(reference_error error) {
    made_.sound = false;
    made_.errors.push_back(std::move(error));
  }

  void lone_dollar(std::size_t dollar) {
    at_ = dollar + 1;
    const std::string name(variable_name_at(text_.substr(at_)));
    refuse({dollar, at_ + name.size(), "a single '$' means nothing",
            name.empty() ? R"(write "$$" for a dollar sign)"
                         : fmt::format(R"(did you mean "${{env:{}}}"?)", name),
            name.empty() ? "" : R"(write "$$" for a dollar sign)"});
  }

  void reference(std::size_t begin) {
    const std::size_t close = text_.find('}', begin);
    if (close == std::string_view::npos) {
      at_ = text_.size();
      refuse({begin, at_, "a '${' without its '}'", "never closed", R"(write "$$" for a dollar sign)"});
      return;
    }
    at_ = close + 1;
    const std::string_view inside = text_.substr(begin + 2, close - begin - 2);
    const std::size_t colon = inside.find(':');
    const std::string_view kind = inside.substr(0, colon);
    const std::string_view name = colon == std::string_view::npos ? "" : inside.substr(colon + 1);
    if (colon != std::string_view::npos && kind == "env") {
      environment(begin, name);
    } else if (colon != std::string_view::npos && kind == "var") {
      variable(begin, name);
    } else if (inside == "cfg:dir") {
      made_.text += folder_.string();
    } else {
      refuse({begin, at_, fmt::format("unknown reference '${{{}}}'", printable(inside)),
              suggestion(inside, kind),
              "use ${env:NAME}, ${env:NAME:-default}, ${cfg:dir} or ${var:NAME}"});
    }
  }

  [[nodiscard]] std::string suggestion(std::string_view inside, std::string_view kind) const {
    if (inside == kind && values_.variables.contains(std::string(inside))) {
      return fmt::format("did you mean ${{var:{}}}?", printable(inside));
    }
    if (inside == kind && !inside.empty() && variable_name_at(inside) == inside) {
      return fmt::format("did you mean ${{env:{}}}?", inside);
    }
    if (kind == "cfg") return "did you mean ${cfg:dir}?";
    return "no such reference";
  }

  void environment(std::size_t begin, std::string_view inside) {
    const std::size_t fallback = inside.find(":-");
    const std::string name(inside.substr(0, fallback));
    if (name.empty() || variable_name_at(name) != name) {
      refuse({begin, at_, fmt::format("'{}' is not the name of an environment variable", printable(name)),
              "expected ${env:NAME} or ${env:NAME:-default}", ""});
      return;
    }
    const auto found = values_.environment.find(name);
    if (fallback != std::string_view::npos) {
      // As in a shell, the default after ":-" also replaces an empty value.
      const bool set = found != values_.environment.end() && !found->second.empty();
      made_.text += set ? std::string_view(found->second) : inside.substr(fallback + 2);
    } else if (found != values_.environment.end()) {
      made_.text += found->second;
    } else {
      refuse({begin, at_, fmt::format("the environment variable {} is not set", name), "not set",
              fmt::format("set it, or give a default: ${{env:{}:-default}}", name), true});
    }
  }

  void variable(std::size_t begin, std::string_view inside) {
    if (scope_ == reference_scope::no_variables) {
      refuse({begin, at_, "a variable cannot be used here", "variables are not known yet",
              "[vars] and `include` are read first: they may refer to ${env:NAME} and ${cfg:dir} only"});
      return;
    }
    const std::string name(inside);
    const auto found = values_.variables.find(name);
    if (found != values_.variables.end()) {
      made_.text += found->second;
      return;
    }
    if (values_.broken_variables.contains(name) || !values_.all_variables_known) {
      made_.sound = false;
      return;
    }
    std::vector<std::string_view> names;
    for (const auto& [other, value] : values_.variables) names.push_back(other);
    const std::string_view near = nearest_name(name, names);
    const bool with_default = name.find(":-") != std::string::npos;
    refuse({begin, at_, fmt::format("there is no variable '{}' in [vars]", printable(name)),
            near.empty() ? "no such variable" : fmt::format("did you mean ${{var:{}}}?", near),
            with_default ? "only ${env:NAME:-default} takes a default" : "", true});
  }

  std::string_view text_;
  const reference_values& values_;
  const std::filesystem::path& folder_;
  reference_scope scope_;
  std::size_t at_ = 0;
  expansion made_;
};

}  // namespace

expansion expand(std::string_view text, const reference_values& values, const std::filesystem::path& folder,
                 reference_scope scope) {
  return expander(text, values, folder, scope).run();
}

std::string escaped_references(std::string_view text) {
  std::string escaped;
  for (const char c : text) escaped.append(c == '$' ? 2 : 1, c);
  return escaped;
}

}  // namespace penstock::config_file
