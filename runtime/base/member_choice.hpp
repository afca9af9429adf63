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
  std::vector<std::string> extensions;  ///< in lower case; the first one that a sample has is used
};

/// The last part of the extension decides: "seg.png" is a picture.
member_kind kind_of_extension(std::string_view extension) noexcept;

/// Parses one entry: extensions separated by ';', ignoring blanks around them and a leading dot. Refuses (errc::config)
/// an entry without an extension, one with extensions of different kinds, and a tensor name that is reserved or not made
/// of letters, digits and '_'. The message's second line says what to do instead.
result<member_choice> parse_member_choice(std::string_view tensor, std::string_view extensions);

/// All entries in the order of their names; image and label if there are none. Refuses what parse_member_choice refuses.
result<std::vector<member_choice>> member_choices(const string_map& members);

/// The member whose number is a sample's class: that of the tensor 'label', otherwise
/// the only number. Null if there is no 'label' and not exactly one number.
const member_choice* class_among(const std::vector<member_choice>& choices) noexcept;

}  // namespace penstock
