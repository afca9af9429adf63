#include "tools/penstock/host_targets.hpp"

#include "runtime/base/number.hpp"
#include "runtime/base/text.hpp"


namespace penstock::cli {
namespace {

constexpr std::string_view host_prefix = "host/";
constexpr std::string_view worker_part = "/worker/";

}  // namespace

std::optional<host_target> parse_host_target(std::string_view text) {
  if (!text.starts_with(host_prefix) || text.size() == host_prefix.size()) return std::nullopt;
  text.remove_prefix(host_prefix.size());
  const std::size_t at = text.rfind(worker_part);
  if (at == std::string_view::npos) return host_target{std::string(text)};
  const auto number = whole_number<std::uint32_t>(text.substr(at + worker_part.size()));
  if (at == 0 || !number) return std::nullopt;
  return host_target{std::string(text.substr(0, at)), number};
}

std::string worker_of_host(const host_target& target, const nlohmann::ordered_json& status) {
  for (const auto& host : status.value("hosts", nlohmann::ordered_json::array())) {
    if (host.at("name") != target.host || !target.worker) continue;
    const auto& workers = host.at("workers");
    if (*target.worker < workers.size()) return fmt::format("worker/{}", workers[*target.worker].get<std::uint32_t>());
  }
  return {};
}

int name_worker(const session_choice& choice, std::string& target) {
  const auto meant = parse_host_target(target);
  if (!meant || !meant->worker) return exit_ok;
  const chosen_socket socket = choose(choice);
  if (socket.refused != exit_ok) return socket.refused;
  const session_answer answer = request(choice, socket.path, {{"verb", "status"}});
  if (answer.refused != exit_ok) return answer.refused;
  const std::string worker = worker_of_host(*meant, answer.result);
  if (worker.empty()) return no_such_target(choice, "there is no " + printable(target));
  target = worker;
  return exit_ok;
}

}  // namespace penstock::cli
