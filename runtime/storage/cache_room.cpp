#include "runtime/storage/cache_room.hpp"

#include <algorithm>

namespace penstock {

cache_room make_room(std::span<const kept_object> objects, std::int64_t session_began, std::uint64_t bytes_max) {
  const std::uint64_t most = bytes_max / 16 * 15;
  const std::uint64_t enough = bytes_max / 10 * 9;
  cache_room made;
  for (const kept_object& one : objects) made.left += one.bytes;
  if (made.left <= most) return made;
  std::vector<std::size_t> unused;
  for (std::size_t i = 0; i < objects.size(); ++i)
    if (objects[i].used < session_began && objects[i].bytes > 0) unused.push_back(i);
  std::ranges::stable_sort(unused, {}, [&](std::size_t i) { return objects[i].used; });
  for (const std::size_t i : unused) {
    if (made.left <= enough) break;
    made.emptied.push_back(i);
    made.left -= objects[i].bytes;
  }
  made.full = made.left > most;
  return made;
}

}  // namespace penstock
