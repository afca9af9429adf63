// Which members of a tar sample become tensors: the entries of [dataset.members]. Pure. Used by the checks of a
// config and by the tar dataset.
#pragma once

#include "runtime/base/result.hpp"

#include <penstock/config.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

enum class member_kind : std::uint8_t {
  picture,  ///< jpg, jpeg, png, webp
  number,   ///< cls, cls2, class, count, index, inx, id: a whole number as text
  array,    ///< npy
  bytes,    ///< everything else
};

struct member_choice {
  std::string tensor;
  member_kind kind = member_kind::bytes;
  std::vector<std::string> extensions;  ///< in lower case; the first that a sample has is taken
};

/// By the last part of an extension: "seg.png" is a picture.
member_kind kind_of_extension(std::string_view extension) noexcept;

/// One entry: extensions with ';' between them, blanks around them ignored, a leading dot too. Refuses
/// (errc::config), with what to do instead as a second line, an entry without an extension, one of several kinds, and
/// a name that is not letters, digits and '_' or that the dataset needs itself.
result<member_choice> parse_member_choice(std::string_view tensor, std::string_view extensions);

/// All entries in the order of their names; without any, image and label. Refuses as parse_member_choice.
result<std::vector<member_choice>> member_choices(const string_map& members);

}  // namespace penstock
