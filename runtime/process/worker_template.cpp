#include "runtime/process/worker_template.hpp"

#include "runtime/base/log.hpp"
#include "runtime/base/text.hpp"

#include <boost/asio/post.hpp>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

namespace penstock::process {
namespace {

std::string text_of(const exit_report& end) {
  return end.ending == exit_report::how::exited ? fmt::format("exit code {}", end.code)
                                                : fmt::format("signal {}", end.code);
}

}  // namespace

worker_template::worker_template(io_thread& io, spawn_request program, callbacks calls)
    : io_(io), program_(std::move(program)), calls_(std::move(calls)), socket_(io.context()) {
  program_.environment.push_back(fmt::format("{}={}", template_variable, template_socket));
}

worker_template::~worker_template() {
  if (control_) control_->give_up();
}

void worker_template::note(std::string text) {
  text_ = std::move(text);
  calls_.waits(text_);
}

// ---- starts -----------------------------------------------------------------------------------------------

std::shared_ptr<start_control> worker_template::start(std::uint32_t worker, spawn_request request,
                                                      spawner::done then) {
  if (at_ == stage::declined) return io_.spawner().start(std::move(request), std::move(then));
  order one{++last_number_, worker, std::move(request), {}, std::move(then)};
  // The caller closes its own.
  for (inherited_fd& fd : one.request.fds) {
    unique_fd kept(::fcntl(fd.ours, F_DUPFD_CLOEXEC, 0));
    if (!kept) {
      one.then(tl::unexpected(os_failure(errc::system, errno, "duplicating a descriptor for a worker")));
      return nullptr;
    }
    fd.ours = kept.get();
    one.descriptors.push_back(std::move(kept));
  }
  orders_.push_back(std::move(one));
  if (at_ == stage::absent) execute();
  if (at_ == stage::ready) send_waiting();
  return nullptr;
}

void worker_template::give_up(std::uint32_t worker) {
  const auto it = std::ranges::find(orders_, worker, &order::worker);
  if (it == orders_.end()) return;
  const auto then = std::move(it->then);
  const bool sent = it->sent;
  orders_.erase(it);
  then(tl::unexpected(failure{errc::system, "the start was given up while its template was " + text_, 0}));
  // A template that does not answer hangs; one that still prepares is of no more use, or hangs as well.
  if (!sent && (at_ == stage::ready || !orders_.empty())) return;
  if (control_) control_->give_up();
  if (process_) process_->signal(SIGKILL);
}

void worker_template::refuse_all(const failure& why) {
  for (order& one : std::exchange(orders_, {})) one.then(tl::unexpected(why));
}

void worker_template::send_waiting() {
  for (order& one : orders_) {
    if (one.sent) continue;
    fork_order what{one.number, ::getpid(), one.worker, static_cast<std::uint32_t>(one.request.fds.size())};
    for (std::size_t i = 0; i < one.request.fds.size(); ++i) what.theirs[i] = one.request.fds[i].theirs;
    const auto sent = send_order(socket_.native_handle(), what, one.descriptors);
    if (!sent || !*sent) break;  // full: after the next answer; gone: its end follows
    one.sent = true;
  }
}

// ---- the process ------------------------------------------------------------------------------------------

void worker_template::execute() {
  at_ = stage::executing;
  note("being executed");
  auto ends = make_fork_sockets();
  std::array<int, 2> output{};
  const unique_fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!ends || !null || ::pipe2(output.data(), O_CLOEXEC) != 0) {
    at_ = stage::absent;
    return refuse_all(os_failure(errc::system, errno, "creating the descriptors of a template"));
  }
  const auto socket = std::make_shared<unique_fd>(std::move(ends->first));
  const auto read = std::make_shared<unique_fd>(output[0]);
  const unique_fd write(output[1]);
  spawn_request request = program_;
  request.fds = {
      {write.get(), STDOUT_FILENO}, {write.get(), STDERR_FILENO}, {ends->second.get(), template_socket}};
  // Nothing that it opens may get a number that its workers need.
  for (int taken = STDERR_FILENO + 1; taken < template_socket; ++taken)
    request.fds.push_back({null.get(), taken});
  control_ =
      io_.spawner().start(std::move(request), [this, alive = std::weak_ptr(alive_), socket, read,
                                               &context = io_.context()](result<unclaimed_child> made) {
        const auto child = std::make_shared<result<unclaimed_child>>(std::move(made));
        boost::asio::post(context, [this, alive, socket, read, child] {
          if (!alive.expired()) executed(std::move(*child), std::move(*socket), std::move(*read));
        });
      });
}

void worker_template::executed(result<unclaimed_child> made, unique_fd socket, unique_fd output) {
  control_.reset();
  at_ = stage::absent;
  if (!made) {
    note("");
    return refuse_all(made.error());
  }
  auto child = child_process::watch(
      io_.context(), std::move(*made).claim(), std::move(output),
      {calls_.output, [this](const exit_report& report, const output_tail& tail) { ended(report, tail); }});
  boost::system::error_code status;
  if (child) socket_.assign(socket.get(), status);
  if (!child || status) {
    note("");
    return refuse_all(child ? os_failure(errc::system, status.value(), "watching a template")
                            : child.error());
  }
  static_cast<void>(socket.release());
  process_ = std::move(*child);
  at_ = stage::preparing;
  note(fmt::format("preparing (pid {}): it imports what workers need", process_->pid()));
  listen();
  if (orders_.empty()) process_->signal(SIGKILL);  // all were given up
}

void worker_template::listen() {
  socket_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                     [this, alive = std::weak_ptr(alive_)](const boost::system::error_code& status) {
                       if (alive.expired() || status) return;
                       auto got = receive_answer(socket_.native_handle());
                       if (!got) {
                         log::error("supervisor", "killing the template (pid {}): {}", process_->pid(),
                                    got.error().message);
                         return process_->signal(SIGKILL);
                       }
                       if (!*got) {  // nothing, or its end
                         std::array<char, 1> look{};
                         if (::recv(socket_.native_handle(), look.data(), 1, MSG_PEEK | MSG_DONTWAIT) == 0)
                           return;
                         return listen();
                       }
                       hear(std::move(**got));
                       if (socket_.is_open()) listen();
                     });
}

void worker_template::hear(received_answer&& got) {
  using kind = fork_answer::kind;
  switch (got.answer.what) {
    case kind::ready:
      at_ = stage::ready;
      note(fmt::format("forking (pid {})", process_->pid()));
      break;
    case kind::declined: return decline(got.answer.why.data());
    case kind::forked: forked(std::move(got)); break;
    case kind::refused: {
      const auto it = std::ranges::find(orders_, got.answer.number, &order::number);
      if (it == orders_.end()) break;
      const auto then = std::move(it->then);
      orders_.erase(it);
      then(tl::unexpected(os_failure(errc::system, got.answer.error, "forking a worker")));
    }
  }
  if (at_ == stage::ready) send_waiting();
}

void worker_template::forked(received_answer&& got) {
  // Signals go to the group, so it has to exist before the first. The worker does the same.
  ::setpgid(got.answer.pid, got.answer.pid);
  unclaimed_child made(child{got.answer.pid, std::move(got.pidfd)}, program_.program);
  const auto it = std::ranges::find(orders_, got.answer.number, &order::number);
  if (it == orders_.end()) return;  // given up
  const auto then = std::move(it->then);
  orders_.erase(it);
  then(std::move(made));
}

void worker_template::decline(const std::string& why) {
  log::warn("supervisor",
            "workers are executed instead of forked: {}. [loader] start_method = \"exec\" avoids the attempt",
            printable(why));
  at_ = stage::declined;
  note("");
  for (order& one : std::exchange(orders_, {})) {
    // The spawner duplicates the descriptors at once.
    static_cast<void>(io_.spawner().start(std::move(one.request), std::move(one.then)));
  }
}

void worker_template::ended(const exit_report& report, const output_tail& tail) {
  // What it answered before its end counts.
  while (at_ != stage::declined) {
    auto got = receive_answer(socket_.native_handle());
    if (!got || !*got) break;
    hear(std::move(**got));
  }
  const pid_t pid = process_->pid();
  boost::system::error_code ignored;
  socket_.close(ignored);
  const auto gone = std::move(process_);
  if (at_ == stage::declined) return;
  const bool was_ready = at_ == stage::ready;
  at_ = stage::absent;
  note("");
  std::vector<std::uint32_t> lost;
  for (order& one : orders_) {
    if (was_ready && (!one.sent || !lost.empty())) continue;
    lost.push_back(one.worker);
    one.then = {};
  }
  std::erase_if(orders_, [](const order& one) { return !one.then; });
  for (order& one : orders_) one.sent = false;
  if (was_ready)
    log::warn(
        "supervisor",
        "the template of the workers (pid {}) ended: {}; the next one is executed when a worker needs it",
        pid, text_of(report));
  if (!orders_.empty()) execute();
  for (const std::uint32_t worker : lost) calls_.ended_for(worker, pid, report, tail);
}

}  // namespace penstock::process
