// The allowed values of a key, as data: form (a size, an array of two numbers, ...) and limits. The checks,
// messages, schema and docs are generated from them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::config_file {

enum class scalar : std::uint8_t { boolean, integer, number, text, size, duration, choice, table };
enum class arity : std::uint8_t {
  one,
  optional,     ///< a value, or the word for no value
  fixed,        ///< an array of `length`
  list,         ///< an array of any length
  one_or_list,  ///< one value, or an array of any length
  list_or_word,  ///< one of `choices`, or an array of any length
  map,          ///< a table with arbitrary keys
};

struct value_form {
  scalar element = scalar::text;
  arity count = arity::one;
  std::size_t length = 0;
  std::uint64_t highest = 0;  ///< the range of the integer's C++ type
  std::vector<std::string_view> choices = {};
  std::string_view absent = "auto";  ///< for `optional`: the word for no value
};

enum class limit_kind : std::uint8_t {
  any,
  range,           ///< limits on each element
  path,            ///< relative to the file that contains it; not a URL
  location,        ///< a path, or a URL of object storage
  command,         ///< a program and its arguments; not empty
  device,          ///< auto, host, cuda, cuda:N, uuid:GPU-...
  session_name,    ///< letters, digits, '.', '_', '-'
  image_type,      ///< uint8, float16, bfloat16, float32
  listen_address,  ///< empty or HOST:PORT
  variable_names,  ///< names of entries are names of environment variables
};

struct value_limits {
  limit_kind kind = limit_kind::any;
  /// The limits in bytes or nanoseconds, or as plain numbers; exact below 2^53.
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
};

/// A mistake in a value or in one of its elements. The message is the key, a blank and the predicate: "'rank'
/// in [sampler] must be ...".
struct breach {
  static constexpr std::size_t whole = static_cast<std::size_t>(-1);
  std::size_t element = whole;
  std::string predicate;
  std::string label;
  std::string help;
};

/// What a value must be, as text: "a whole number or \"auto\"", "an array of 2 numbers". `element`: one
/// element of it.
std::string expectation(const value_form& form, bool element);

/// "between 1ms and 1h", "at least 16MiB"; empty if there are none.
std::string limits_text(const value_form& form, const value_limits& limits);

/// Prints a number in the format of limits_text.
std::string scalar_text(scalar kind, double value);

/// Checks that a number is within the limits. The breach says which limit it exceeds.
bool within(const value_form& form, const value_limits& limits, double value, std::size_t element,
            std::vector<breach>& found);

inline constexpr std::size_t session_name_max = 64;  ///< characters

/// Checks strings with a special format: path, device, session_name, listen_address.
void check_text(const value_limits& limits, std::string_view text, std::vector<breach>& found);

/// The element types that images can be converted to.
const std::vector<std::string_view>& image_types();

bool is_session_name(std::string_view name) noexcept;
/// Turns any text into a session name: other characters become '-'.
std::string as_session_name(std::string_view text);

/// The name that was probably meant. Recognises typing errors, another
/// case, and a longer or shorter ending. Empty if none is close.
std::string_view meant_name(std::string_view word, const std::vector<std::string_view>& names);

/// "a, b or c", each in double quotes.
std::string quoted_list(const std::vector<std::string_view>& names);

}  // namespace penstock::config_file
