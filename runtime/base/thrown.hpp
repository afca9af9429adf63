// Describes what user code has thrown. Used wherever user code is called: datasets, functions of a pool,
// device programs.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace penstock {

/// The type of the current exception as C++ spells it: "std::out_of_range". Call it inside a handler.
[[nodiscard]] std::string thrown_type();

/// "std::out_of_range: map::at". Omits the type where it adds nothing: for std::runtime_error,
/// and for penstock's own exceptions, whose text is written for people. Call it inside a handler.
[[nodiscard]] std::string thrown_text();

/// Gives "what: why" without repetition. Users' texts often contain the text of their cause, or already say what was
/// being done.
[[nodiscard]] std::string with_cause(std::string_view what, std::string_view why);

/// The text of an exception, followed by those of nested ones: "cannot open the index: no such file".
[[nodiscard]] std::string text_of(const std::exception& e);

}  // namespace penstock
