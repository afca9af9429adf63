// Workers of a pool on loader hosts (rule H13).
#include "actors/jobs/pool_body.hpp"
#include "actors/protocol/config_bytes.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <mutex>
#include <optional>
#include <random>

namespace penstock {
namespace {

/// The settings that a host needs. Leaves out all others, which may contain secrets.
config config_for_hosts(const config& settings) {
  config told;
  told.name = settings.name;
  told.loader.start_method = settings.loader.start_method;
  told.loader.hosts = settings.loader.hosts;
  told.loader.hosts.secret_file.clear();
  return told;
}

/// Adds up the time that jobs waited for a worker. Thread-safe.
class time_of_lack {
 public:
  nanoseconds look(bool jobs_wait, steady_time now) {
    const std::lock_guard hold(mutex_);
    if (jobs_wait && looked_) lacked_ += std::max(now - *looked_, nanoseconds(0));
    looked_ = std::max(now, looked_.value_or(now));
    return lacked_;
  }

 private:
  std::mutex mutex_;
  std::optional<steady_time> looked_;
  nanoseconds lacked_{0};
};

std::uint64_t drawn() {
  std::random_device source;
  return (std::uint64_t{source()} << 32U) | source();
}

}  // namespace

result<void> Pool::body::prepare_hosts() {
  auto setup = hosts::read_hosts(settings_.loader, workers_ > 0);
  if (!setup) return tl::unexpected(std::move(setup.error()));
  if (!*setup) return {};
  if (hosted_.kind.empty())
    return refuse(errc::config, "[loader.hosts]: hosts cannot start this pool's worker program ({})",
                  settings_.loader.command.front());
  auto program = std::make_shared<hosts::shared_program>();
  program->kind = std::move(hosted_.kind);
  program->facts = {hosted_.facts.begin(), hosted_.facts.end()};
  program->code = std::move(hosted_.code);
  program->nonce = drawn();
  if (hosted_.marks >= 0) {
    struct stat facts {};
    if (::fstat(hosted_.marks, &facts) != 0) return refuse_os(errc::system, errno, "reading the size of the file of job marks");
    auto marks = hosts::job_marks::map(hosted_.marks, static_cast<std::uint64_t>(facts.st_size));
    if (!marks) return tl::unexpected(std::move(marks.error()));
    program->marks = std::make_unique<const hosts::job_marks>(std::move(*marks));
  }
  shared_program_ = std::move(program);
  hosts_ = std::move(*setup);
  return {};
}

void Pool::body::make_hub(engine& e) {
  if (!shared_program_) return;
  hosts::connection_deps deps = hosts::deps_of(settings_, *hosts_, PENSTOCK_VERSION);
  deps.config = protocol::config_as_bytes(config_for_hosts(settings_));
  deps.program = shared_program_;
  deps.arena = e.memory->fd();
  deps.flights = e.flights;
  deps.waited = [this, lacks = std::make_shared<time_of_lack>()] {
    const jobs::admission::counts held = admission_->now();
    return lacks->look(held.waiting > 0 || held.callers_wait, now());
  };
  e.hub = std::make_shared<hosts::host_hub>(*e.io, hosts_->hub, std::move(deps), host_board_,
                                            [this](event_kind kind, const std::string& host, const std::string& text) {
                                              tell(host::event_of_host(kind, host, text));
                                            });
  e.remote_times = [hub = e.hub](std::uint32_t worker) { return hub->times_of(worker); };
}

void Pool::body::add_verbs(host::session_controls& controls, run::engine& of_run) {
  auto& e = static_cast<engine&>(of_run);
  if (e.hub) {
    controls.drain_host = [hub = e.hub](const std::string& name) { return hub->send_away(name); };
    controls.scale_host = [hub = e.hub](const std::string& name, std::uint32_t workers) { return hub->scale(name, workers); };
  }
}

void Pool::body::publish(std::uint64_t number, int file) {
  if (!shared_program_) throw error({errc::usage, "publishing a file: this pool has no loader hosts", 0});
  value_or_throw(shared_program_->files.publish(number, file));
}

void Pool::body::withdraw(std::uint64_t number) noexcept {
  if (shared_program_) shared_program_->files.withdraw(number);
}

}  // namespace penstock
