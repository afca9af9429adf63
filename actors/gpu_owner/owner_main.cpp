#include "actors/gpu_owner/owner_main.hpp"

#include "actors/caf/caf.hpp"
#include "actors/child/child.hpp"
#include "actors/gpu_owner/owner_body.hpp"
#include "actors/protocol/link.hpp"
#include "actors/protocol/log_level.hpp"
#include "runtime/base/exit_codes.hpp"
#include "runtime/base/log.hpp"
#include "runtime/process/crash_notes.hpp"
#include "runtime/process/io_thread.hpp"

#include <unistd.h>

#include <atomic>

namespace penstock {
namespace {

class owner_program final : gpu_owner::owner_host {
 public:
  owner_program();
  int run();

 private:
  void introduced(const protocol::open_owner& order, const config& settings) override;
  void ends(int code, const std::optional<protocol::worker_gives_up>& last_words) override;
  void stuck(const std::string& why) override;

  child::heartbeat pulse_;
  process::io_thread io_;
  actors::actor_system system_{1, protocol::local_messages};
  gpu_owner::owner_body body_{{&system_, this, protocol::child_fd::arena, protocol::child_fd::flight}};
  std::shared_ptr<protocol::owners_session_link> link_;
  std::atomic_flag dying_;
};

owner_program::owner_program() {
  link_ = protocol::owners_session_link::make(
      io_.context(), unique_fd(protocol::child_fd::link),
      {[this](protocol::to_owner&& message) { body_.hear(std::move(message)); },
       [](const std::string&) { ::_exit(exit_codes::parent_lost); }});
  body_.speak_through(link_);
  link_->send(protocol::hello{protocol::hello::expected_magic, protocol::version, ::getpid()});
  boost::asio::post(io_.context(), [this] { link_->start(); });
}

int owner_program::run() {
  body_.run();
  return exit_codes::failed;  // the body has called ends()
}

void owner_program::introduced(const protocol::open_owner& order, const config& settings) {
  log::set_level(as_log_level(settings.log.level));
  pulse_.adopt(order.flight_page);
}

void owner_program::ends(int code, const std::optional<protocol::worker_gives_up>& last_words) {
  // A lost context makes calls fail on several threads at once. Only the first of them reports it.
  while (dying_.test_and_set()) ::pause();
  if (last_words) link_->send(*last_words);
  child::leave(code, [this](std::function<void()> then) { link_->when_sent(std::move(then)); });
}

/// Ends this process so that another one continues from the last agreed snapshot.
void owner_program::stuck(const std::string& why) {
  log::warn("group", "{}: ending this process", why);
  ends(exit_codes::temporary, std::nullopt);
}

}  // namespace

int owner_main() {
  if (!child::started_by_a_session("penstock's GPU owner")) return exit_codes::configuration;
  process::write_stack_when_dying();
  process::this_thread_works();
  owner_program owner;
  return owner.run();
}

}  // namespace penstock
