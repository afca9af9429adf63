#include "tools/penstock/launch/launch_machine.hpp"

#include "runtime/base/text.hpp"
#include "runtime/process/cores.hpp"
#include "tools/penstock/machine/cuda_probe.hpp"
#include "tools/penstock/machine/root_files.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>

namespace penstock::cli {
namespace {

/// The cores near a PCI device, as the kernel describes it.
std::vector<int> cores_near(std::string pci) {
  std::ranges::transform(pci, pci.begin(), [](unsigned char c) { return std::tolower(c); });
  return process::parse_core_list(machine::text_of("/sys/bus/pci/devices/" + pci + "/local_cpulist"));
}

}  // namespace

result<std::vector<launch_gpu>> visible_gpus() {
  const machine::cuda_facts cuda = machine::look_at_cuda();
  if (!cuda.child.good()) return refuse(errc::system, "looking for GPUs: {}", cuda.child.trouble);
  std::vector<launch_gpu> gpus;
  for (const machine::cuda_device_facts& d : cuda.devices)
    gpus.push_back({static_cast<std::uint32_t>(d.ordinal), d.name, d.uuid, cores_near(d.pci)});
  return gpus;
}

result<std::uint16_t> free_port() {
  using boost::asio::ip::tcp;
  boost::asio::io_context io;
  boost::system::error_code status;
  tcp::acceptor acceptor(io);
  const tcp::endpoint any(boost::asio::ip::address_v4::loopback(), 0);
  acceptor.open(any.protocol(), status);
  if (!status) acceptor.bind(any, status);
  if (status) return refuse_os(errc::system, status.value(), "looking for a free port");
  return acceptor.local_endpoint().port();
}

result<std::string> random_text(std::size_t bytes) {
  std::vector<unsigned char> drawn(bytes);
  if (::getrandom(drawn.data(), drawn.size(), 0) != static_cast<ssize_t>(bytes))
    return refuse_os(errc::system, errno, "generating the group's secret");
  std::string text;
  for (const unsigned char byte : drawn) text += fmt::format("{:02x}", byte);
  return text;
}

result<void> add_meeting_place(launch_names& names) {
  constexpr std::size_t secret_bytes = 32;
  constexpr std::size_t name_bytes = 8;
  auto secret = random_text(secret_bytes);
  if (!secret) return tl::unexpected(std::move(secret.error()));
  const auto name = random_text(name_bytes);
  if (!name) return tl::unexpected(name.error());
  names.group_secret = std::move(*secret);
  names.group_address = fmt::format("@penstock-group/launch-{}-{}", ::getpid(), *name);
  return {};
}

}  // namespace penstock::cli
