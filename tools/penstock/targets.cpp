#include "tools/penstock/targets.hpp"

#include "runtime/base/number.hpp"


namespace penstock::cli {

std::optional<target> parse_target(std::string_view text) {
  if (text == "workers") return target{target_kind::workers, 0};
  if (text == "gpu") return target{target_kind::gpu, 0};
  if (text == "scheduler") return target{target_kind::scheduler, 0};
  if (text == "all") return target{target_kind::all, 0};
  constexpr std::string_view prefix = "worker/";
  if (!text.starts_with(prefix)) return std::nullopt;
  const auto number = whole_number<std::uint32_t>(text.substr(prefix.size()));
  return number ? std::optional(target{target_kind::worker, *number}) : std::nullopt;
}

}  // namespace penstock::cli
