#include "actors/supervisor/linked_child.hpp"

#include "actors/protocol/link.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>

namespace penstock::supervisor {

result<linked_child> start_linked_child(boost::asio::io_context& io, const linked_child_request& request,
                                        process::child_callbacks callbacks) {
  auto program = process::find_program(request.program);
  if (!program) return tl::unexpected(std::move(program.error()));
  auto ends = protocol::make_link_pair();
  if (!ends) return tl::unexpected(std::move(ends.error()));
  std::array<int, 2> output{};
  if (::pipe2(output.data(), O_CLOEXEC) != 0)
    return refuse_os(errc::system, errno, fmt::format("creating the output pipe of {}", request.who));
  unique_fd output_read(output[0]);
  const unique_fd output_write(output[1]);

  process::spawn_request spawn{*program,
                               request.arguments,
                               request.environment,
                               {{output_write.get(), STDOUT_FILENO},
                                {output_write.get(), STDERR_FILENO},
                                {ends->second.get(), protocol::child_fd::link},
                                {request.lifeline, protocol::child_fd::lifeline},
                                {request.arena, protocol::child_fd::arena},
                                {request.flight, protocol::child_fd::flight}}};
  if (request.index >= 0) spawn.fds.push_back({request.index, protocol::child_fd::index});
  auto child =
      process::child_process::start(io, std::move(spawn), std::move(output_read), std::move(callbacks));
  if (!child) return tl::unexpected(std::move(child.error()));
  return linked_child{std::move(*child), std::move(ends->first)};
}

}  // namespace penstock::supervisor
