#include "actors/protocol/config_bytes.hpp"

#include "actors/protocol/whole_message.hpp"

namespace penstock {

// Defines visit_members() for each table of the config: it visits the keys in the order of the key table, which leaves out
// keys that are not sent. byte_output and byte_reader find these functions by their argument's namespace.
#define PENSTOCK_TABLE(type, ...)                           \
  template <class Table, class Visit>                       \
  requires std::is_same_v<std::remove_const_t<Table>, type> \
  static bool visit_members(Table& table, Visit& visit) {   \
    return true
#define PENSTOCK_KEY(type, name, ...) &&visit(table.name)
#define PENSTOCK_SUBTABLE(type, name) &&visit(table.name)
#define PENSTOCK_KEYS_OF(type, name) &&visit(table.name)
#define PENSTOCK_TABLE_END(type) \
  ;                              \
  }
#include <penstock/config_keys.def>

namespace protocol {

std::string config_as_bytes(const config& settings) {
  return message_as<std::string>(settings);
}

result<config> config_from_bytes(std::string_view bytes) {
  byte_reader in(bytes);
  config settings;
  if (!in(settings) || in.remaining() != 0)
    return refuse(errc::protocol, "the config in the message is truncated or corrupt ({} bytes)",
                  bytes.size());
  return settings;
}

}  // namespace protocol
}  // namespace penstock
