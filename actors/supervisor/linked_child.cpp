#include "actors/supervisor/linked_child.hpp"

#include "actors/protocol/link.hpp"
#include "actors/protocol/parcels.hpp"
#include "runtime/base/check.hpp"
#include "runtime/process/inherited_environment.hpp"

#include <boost/asio/post.hpp>
#include <fcntl.h>
#include <unistd.h>

#include <array>

namespace penstock::supervisor {
namespace {

/// The session's ends of the descriptors that a child inherits, held while the child starts.
struct expected_child {
  unique_fd link;
  unique_fd parcels;
  unique_fd output;
  process::child_callbacks callbacks;
  std::function<void(result<linked_child>)> then;

  void arrived(boost::asio::io_context& io, result<process::unclaimed_child> made) {
    if (!made) return then(tl::unexpected(std::move(made.error())));
    auto child =
        process::child_process::watch(io, std::move(*made).claim(), std::move(output), std::move(callbacks));
    if (!child) return then(tl::unexpected(std::move(child.error())));
    const pid_t pid = (*child)->pid();
    then(linked_child{pid, std::move(*child), std::move(link), std::move(parcels)});
  }
};

}  // namespace

std::shared_ptr<process::start_control> start_linked_child(process::io_thread& io,
                                                           linked_child_request request,
                                                           process::child_callbacks callbacks,
                                                           std::function<void(result<linked_child>)> then) {
  PENSTOCK_CHECK(!request.parcels || request.indexes.empty(),
                 "{} would get an index and parcels under the same descriptor number", request.who);
  auto ends = protocol::make_link_pair();
  if (!ends) {
    then(tl::unexpected(std::move(ends.error())));
    return nullptr;
  }
  std::pair<unique_fd, unique_fd> parcels;
  if (request.parcels) {
    auto made = protocol::make_parcel_pair();
    if (!made) {
      then(tl::unexpected(std::move(made.error())));
      return nullptr;
    }
    parcels = std::move(*made);
  }
  std::array<int, 2> output{};
  if (::pipe2(output.data(), O_CLOEXEC) != 0) {
    then(refuse_os(errc::system, errno, fmt::format("creating the output pipe of {}", request.who)));
    return nullptr;
  }
  unique_fd output_read(output[0]);
  const unique_fd output_write(output[1]);

  // No child gets a secret, even if the caller has put one into the environment.
  std::erase_if(request.environment, process::is_secret);
  process::spawn_request spawn{std::move(request.program),
                               std::move(request.arguments),
                               std::move(request.environment),
                               {{output_write.get(), STDOUT_FILENO},
                                {output_write.get(), STDERR_FILENO},
                                {ends->second.get(), protocol::child_fd::link},
                                {request.lifeline, protocol::child_fd::lifeline},
                                {request.arena, protocol::child_fd::arena},
                                {request.flight, protocol::child_fd::flight}}};
  spawn.cores = std::move(request.cores);
  for (std::size_t i = 0; i < request.indexes.size(); ++i)
    if (request.indexes[i] >= 0)
      spawn.fds.push_back({request.indexes[i], protocol::child_fd::index + static_cast<int>(i)});
  if (request.parcels) spawn.fds.push_back({parcels.second.get(), protocol::child_fd::parcels});
  const auto expected = std::make_shared<expected_child>(
      expected_child{std::move(ends->first), std::move(parcels.first), std::move(output_read),
                     std::move(callbacks), std::move(then)});
  // The spawner is destroyed before the io context and posts nothing afterwards.
  auto arrived = [&context = io.context(), expected](result<process::unclaimed_child> made) {
    const auto child = std::make_shared<result<process::unclaimed_child>>(std::move(made));
    boost::asio::post(context,
                      [&context, expected, child] { expected->arrived(context, std::move(*child)); });
  };
  if (request.start_with) return request.start_with(std::move(spawn), std::move(arrived));
  return io.spawner().start(std::move(spawn), std::move(arrived));
}

}  // namespace penstock::supervisor
