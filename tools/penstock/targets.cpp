#include "tools/penstock/targets.hpp"

#include <charconv>

namespace penstock::cli {

std::optional<target> parse_target(std::string_view text) {
  if (text == "workers") return target{target_kind::workers, 0};
  if (text == "gpu") return target{target_kind::gpu, 0};
  if (text == "scheduler") return target{target_kind::scheduler, 0};
  if (text == "all") return target{target_kind::all, 0};
  constexpr std::string_view prefix = "worker/";
  if (!text.starts_with(prefix)) return std::nullopt;
  std::uint32_t number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, status] = std::from_chars(text.data() + prefix.size(), end, number);
  if (status != std::errc{} || rest != end) return std::nullopt;
  return target{target_kind::worker, number};
}

}  // namespace penstock::cli
