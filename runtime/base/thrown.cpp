#include "runtime/base/thrown.hpp"

#include <fmt/core.h>

#include <cxxabi.h>

#include <cctype>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <typeinfo>

namespace penstock {
namespace {

/// Whether `text` contains `part` as whole words.
bool says(std::string_view text, std::string_view part) {
  const auto is_part_of_word = [&](std::size_t at) { return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])) != 0; };
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) {
    if ((at == 0 || !is_part_of_word(at - 1)) && !is_part_of_word(at + part.size())) return true;
  }
  return false;
}

}  // namespace

std::string with_cause(std::string_view what, std::string_view why) {
  if (says(what, why)) return std::string(what);
  if (why.starts_with(what) && says(why, what)) return std::string(why);
  return fmt::format("{}: {}", what, why);
}

std::string thrown_type() {
  const std::type_info* const type = abi::__cxa_current_exception_type();
  if (type == nullptr) return "an exception thrown by another language";
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(type->name(), nullptr, nullptr, &status), std::free);
  std::string text = status == 0 ? name.get() : type->name();
  // std::throw_with_nested() throws a type derived from the one that its caller named.
  constexpr std::string_view nested = "std::_Nested_exception<";
  if (text.starts_with(nested) && text.ends_with('>'))
    text = text.substr(nested.size(), text.size() - nested.size() - 1);
  return text;
}

std::string text_of(const std::exception& e) {
  std::string text = e.what() != nullptr && *e.what() != '\0' ? e.what() : "an exception without a message";
  try {
    std::rethrow_if_nested(e);
  } catch (const std::exception& cause) {
    text = with_cause(text, text_of(cause));
  } catch (...) {  // the text of such an exception is unknown
  }
  return text;
}

std::string thrown_text() {
  const std::string type = thrown_type();
  try {
    throw;
  } catch (const std::exception& e) {
    const std::string text = text_of(e);
    const bool was_written_for_people = type == "std::runtime_error" || type.starts_with("penstock::");
    return was_written_for_people ? text : with_cause(type, text);
  } catch (const std::string& text) {
    return text;
  } catch (const char* text) {
    return text != nullptr ? text : "a null pointer";
  } catch (...) {
    return type + ": an exception that is not a std::exception";
  }
}

}  // namespace penstock
