#include "actors/caf/caf.hpp"
#include "actors/child/child.hpp"
#include "actors/child/high_descriptor.hpp"
#include "actors/loader/by_hand.hpp"
#include "actors/loader/loader_actor.hpp"
#include "runtime/base/exit_codes.hpp"
#include "runtime/process/crash_notes.hpp"
#include "runtime/process/fault_injection.hpp"
#include "runtime/process/io_thread.hpp"

#include <unistd.h>

#include <future>

namespace penstock {

int worker_main(const dataset_factory& make) {
  if (!child::has_session()) return loader::run_by_hand(make);
  if (!child::started_by_a_session("a penstock loader worker")) return exit_codes::configuration;
  child::prefer_as_oom_victim();
  child::leave_sigterm_to_the_host();
  process::write_stack_when_dying();
  process::accept_injected_faults();
  child::heartbeat pulse;

  std::atomic<bool> stopping{false};
  const auto expected = std::make_shared<loader::expected_leases>();
  std::promise<int> exit_code;
  process::io_thread io;
  actors::actor_system system(1, loader::messages);
  loader::loader_actor loader;

  // The io thread passes messages to the actor unchanged. Only stop_work and urgent leases overtake earlier leases. Each lease is
  // announced to the dataset while the actor still works on the previous one.
  const auto deliver = [&](protocol::to_worker&& message) {
    std::visit(
        [&](auto&& m) {
          using type = std::remove_cvref_t<decltype(m)>;
          if constexpr (std::is_same_v<type, protocol::stop_work>) {
            stopping = true;
            actors::tell(loader, loader::wake_up{});
          } else if constexpr (std::is_same_v<type, protocol::run_jobs>) {
            actors::tell(loader, loader::link_lost{"a worker that loads a dataset received a job"});
          } else if constexpr (std::is_same_v<type, protocol::drop_batch>) {
            expected->drop(m);
          } else {
            if constexpr (std::is_same_v<type, protocol::open_dataset>) pulse.adopt(m.you.worker);
            if constexpr (std::is_same_v<type, protocol::load_batch>) {
              expected->announce(m);
              if (m.urgent) {
                expected->add_urgent(std::forward<decltype(m)>(m));
                return actors::tell(loader, loader::wake_up{});
              }
            }
            actors::tell(loader, std::forward<decltype(m)>(m));
          }
        },
        std::move(message));
  };
  const auto closed = [&](const std::string& reason) {
    stopping = true;
    actors::tell(loader, loader::link_lost{reason});
  };
  // A descriptor that the dataset writes to or closes by mistake usually has a low number.
  unique_fd socket = child::high_duplicate(protocol::child_fd::link);
  if (socket) ::close(protocol::child_fd::link);
  else socket.reset(protocol::child_fd::link);
  const int descriptor = socket.get();
  const auto link = protocol::session_link::make(io.context(), std::move(socket), {deliver, closed});
  loader = loader::spawn_loader(
      system, {make, link, descriptor, &stopping, expected, [&](int code) { exit_code.set_value(code); }});
  link->send(protocol::hello{protocol::hello::expected_magic, protocol::version, ::getpid()});
  boost::asio::post(io.context(), [&] { link->start(); });

  const int code = exit_code.get_future().get();
  child::leave(code, [&](std::function<void()> then) { link->when_sent(std::move(then)); });
}

}  // namespace penstock
