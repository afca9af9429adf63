// How a host joins: secret, versions, dataset or program (rule H2).
#include "actors/remote/agreement.hpp"
#include "actors/remote/host_probe.hpp"
#include "actors/remote/remote_connection.hpp"
#include "runtime/hosts/host_records.hpp"

namespace penstock::hosts {
namespace {

using namespace std::chrono_literals;

constexpr nanoseconds handshake_deadline = 5s;
constexpr nanoseconds listing_deadline = 10min;  // for the host to list the dataset
constexpr nanoseconds probe_deadline = 2min;    // for `penstock doctor` to list the dataset
constexpr std::size_t hello_bytes_max = 4096;

}  // namespace

result<void> remote_connection::refuse_host(std::string why, bool for_good) {
  end_.refused = for_good;
  stream_.put(to_host(refused{why, for_good}));
  static_cast<void>(stream_.flush(handshake_deadline));
  return refuse(errc::config, "{}", why);
}

result<void> remote_connection::admit() {
  if (auto ok = stream_.secure(handshake_deadline); !ok) return ok;
  stream_.limit(hello_bytes_max);
  if (who_ == connected_by::session) stream_.put(to_host(session_calls{.session = deps_->session, .process = deps_->process}));
  if (auto ok = stream_.flush(handshake_deadline); !ok) return ok;
  auto first = stream_.wait_for<from_host>(handshake_deadline);
  if (!first) return tl::unexpected(std::move(first.error()));
  if (const auto* no = std::get_if<host_busy>(&*first)) {
    if (who_ == connected_by::host) tell_(host_known{});  // the host has proved that it knows the secret
    return refuse(errc::io, "{}", no->why);
  }
  const auto* hello = std::get_if<host_hello>(&*first);
  const bool probe = hello != nullptr && hello->magic == host_hello::magic_of_probe;
  if (hello == nullptr || (hello->magic != host_hello::expected_magic && !probe))
    return refuse(errc::protocol, "it is not a loader host");
  end_.host = shown_name(hello->name);
  const host_card card{end_.host, address_, hello->pid, hello->process, hello->penstock, hello->cores, hello->workers, hello->workers_of_all};
  if (probe) tell_(host_known{card, hello->workers});
  if (std::string why = difference_of_versions(hello->penstock, hello->version, deps_->version); !why.empty()) {
    auto no = refuse_host(std::move(why));
    end_.refused = !probe;  // a probe does not ask to join
    return no;
  }
  if (probe) return answer_probe();
  if (auto packs = packer::open(deps_->compress)) packer_ = std::move(*packs);  // read_hosts() has found the library
  tell_(host_known{card, hello->workers});
  stream_.limit(protocol::frame_bytes_max);
  welcome invitation{deps_->session, deps_->config, deps_->digests};
  if (deps_->program) describe(*deps_->program, invitation);
  stream_.put(to_host(invitation));
  if (auto ok = stream_.flush(handshake_deadline, code_of(deps_->program.get())); !ok) return ok;

  auto answer = stream_.wait_for<from_host>(listing_deadline);
  if (!answer) return tl::unexpected(std::move(answer.error()));
  if (const auto* no = std::get_if<cannot_join>(&*answer)) {
    end_.refused = true;
    return refuse(errc::config, "{}", no->why);
  }
  if (std::string why = difference(*answer); !why.empty()) return refuse_host(std::move(why));
  tell_(host_agreed{card});
  return {};
}

/// Answers `penstock doctor --host`, which examines this session as a host would, but gets no place.
result<void> remote_connection::answer_probe() {
  stream_.limit(protocol::frame_bytes_max);
  welcome invitation{deps_->session, deps_->config, deps_->digests};
  if (deps_->program) describe(*deps_->program, invitation);
  invitation.code_bytes = 0;
  stream_.put(to_host(invitation));
  if (auto ok = stream_.flush(handshake_deadline); !ok) return ok;
  return answer_probe_of_host(stream_, probe_deadline, [this](const from_host& found) { return difference(found); });
}

/// How the host's dataset or program differs from the session's; empty: not at all (rule H2).
std::string remote_connection::difference(const from_host& found) const {
  if (deps_->program) {
    const auto* facts = std::get_if<program_found>(&found);
    return facts == nullptr ? "it does not say which program it has" : difference_of_facts(deps_->program->facts, facts->facts);
  }
  const auto* dataset = std::get_if<dataset_found>(&found);
  if (dataset == nullptr) return "it does not say which dataset it has";
  std::string why = difference_of_facts(deps_->program_facts, dataset->program);
  return why.empty() ? difference_of_datasets(deps_->dataset, dataset->dataset) : why;
}

}  // namespace penstock::hosts
