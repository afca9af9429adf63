#include "runtime/net/shared_port.hpp"

#include "runtime/group/group_wire.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>
#include <vector>

namespace penstock::group {
namespace {

constexpr std::size_t first_bytes_max = 2048;  // longer than any ClientHello, even with the longest identity

}  // namespace

struct shared_port::all_entries {
  std::mutex mutex;
  std::vector<entry*> entries;
};

shared_port::all_entries& shared_port::all() {
  static auto* known = new all_entries;  // never destroyed, because a listener's thread may outlive main()
  return *known;
}

bool asks_for(std::string_view first_bytes, std::string_view group) {
  const std::size_t in_plain = frame_header_bytes;
  if (first_bytes.size() > in_plain && first_bytes.substr(in_plain).starts_with(hello_magic)) {
    const std::size_t name = in_plain + hello_magic.size() + 4 /* version */ + 4 /* its length */;
    const std::string_view rest = first_bytes.substr(std::min(name, first_bytes.size()));
    return rest == group;  // a member sends nothing after its hello until it is answered
  }
  std::string identity = "penstock/" + std::string(group);
  identity.insert(0, {static_cast<char>(identity.size() >> 8U), static_cast<char>(identity.size() & 0xffU)});
  return first_bytes.find(identity) != std::string_view::npos;
}

shared_port::shared_port(std::string where, std::string group, std::function<void(unique_fd)> take)
    : own_{std::move(where), std::move(group), std::move(take)} {
  const std::lock_guard hold(all().mutex);
  all().entries.push_back(&own_);
}

shared_port::~shared_port() {
  const std::lock_guard hold(all().mutex);
  std::erase(all().entries, &own_);
}

void shared_port::hold() {
  const std::lock_guard hold(all().mutex);
  own_.holds = true;
}

bool shared_port::is_held_by_another() const {
  const std::lock_guard hold(all().mutex);
  return std::ranges::any_of(all().entries, [this](const entry* one) {
    return one != &own_ && one->where == own_.where && one->holds;
  });
}

unique_fd shared_port::route(unique_fd socket) const {
  std::array<char, first_bytes_max> bytes;  // NOLINT(cppcoreguidelines-pro-type-member-init): written by recv
  const ssize_t got = ::recv(socket.get(), bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT);
  if (got <= 0) return socket;
  const std::string_view first(bytes.data(), static_cast<std::size_t>(got));
  if (asks_for(first, own_.group)) return socket;
  const std::lock_guard hold(all().mutex);
  for (const entry* one : all().entries) {
    if (one == &own_ || one->where != own_.where || !asks_for(first, one->group)) continue;
    one->take(std::move(socket));
    return {};
  }
  return socket;
}

}  // namespace penstock::group
