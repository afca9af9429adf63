#include "runtime/base/fd.hpp"
#include "runtime/base/launcher_environment.hpp"
#include "runtime/device/nccl.hpp"
#include "runtime/device/nvjpeg.hpp"
#include "runtime/group/group_address.hpp"
#include "runtime/group/this_process.hpp"
#include "runtime/net/group_secret.hpp"
#include "tools/penstock/doctor/gather.hpp"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <memory>

namespace penstock::doctor {
namespace {

constexpr int reach_deadline_ms = 3000;

/// 0, or the error of connecting; ETIMEDOUT if there is no answer.
int connect_within_deadline(const addrinfo& to) {
  const unique_fd link(::socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!link) return errno;
  if (::connect(link.get(), to.ai_addr, to.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd one{link.get(), POLLOUT, 0};
  if (::poll(&one, 1, reach_deadline_ms) <= 0) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  return ::getsockopt(link.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

void try_to_reach(const group::group_address& address, group_facts& to) {
  using answer = group_facts::answer;
  if (address.what == group::group_address::kind::abstract_socket) return;
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int status =
      ::getaddrinfo(address.name.c_str(), std::to_string(address.port).c_str(), &wanted, &found);
  if (status != 0) {
    to.reach = answer::unreachable;
    to.reach_trouble = std::string("its name does not resolve: ") + ::gai_strerror(status);
    return;
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all(found, ::freeaddrinfo);
  const int error = connect_within_deadline(*all);
  to.reach = error == 0              ? answer::answers
             : error == ECONNREFUSED ? answer::nobody_listens
                                     : answer::unreachable;
  if (to.reach == answer::unreachable) to.reach_trouble = std::strerror(error);
}

void look_for_nccl(group_facts& to) {
  const auto nccl = device::nccl_library::open();
  if (!nccl) {
    to.nccl_trouble = nccl.error().message;
    return;
  }
  to.nccl = fmt::format("{} ({})", (*nccl)->version_text(), (*nccl)->path());
}

}  // namespace

void look_at_decoder(const config& settings, gpu_facts& to) {
  to.decoder = settings.image.decoder;
  if (to.decoder == decoder_rule::cpu) return;
  const auto library = device::nvjpeg_library::open();
  if (!library) {
    to.nvjpeg_trouble = library.error().message;
    return;
  }
  to.nvjpeg = fmt::format("{} ({})", (*library)->version_text(), (*library)->path());
}

void look_at_group(const config& settings, group_facts& to) {
  to.shares_gpu = settings.gpu.share;
  to.wants_nccl = settings.group.communicator == communicator_kind::nccl;
  if (to.wants_nccl) look_for_nccl(to);
  const auto secret = group::find_secret(settings.group.secret_file, group::variable_of_this_process);
  if (!secret) to.secret_trouble = secret.error().message;
  to.has_secret = secret && secret->has_value();
  const auto place = launcher_place_in(group::variable_of_this_process);
  if (!place) to.rank_trouble = place.error().message;
  if (!place || !*place) return;
  const launcher_place& here = **place;
  to.there = true;
  to.place = fmt::format("rank {} of {} according to {}", here.rank, here.world_size, here.launcher);
  to.ranks_here = here.local_world_size;
  const auto address = group::address_of(here, group::variable_of_this_process, ::getuid(), settings.name);
  if (!address) {
    to.address_trouble = address.error().message;
    return;
  }
  to.address = group::text_of(*address);
  try_to_reach(*address, to);
  if (to.secret_trouble.empty()) {
    if (auto ok = group::check_secret(*address, to.has_secret, settings.group.insecure); !ok)
      to.secret_trouble = ok.error().message;
  }
}

}  // namespace penstock::doctor
