#include "runtime/process/worker_template.hpp"

#include "runtime/base/log.hpp"
#include "runtime/base/text.hpp"
#include "runtime/process/cores.hpp"

#include <boost/asio/post.hpp>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

namespace penstock::process {
namespace {

std::string text_of(const exit_report& end) {
  return end.ending == exit_report::how::exited ? fmt::format("exit code {}", end.code)
                                                : fmt::format("signal {}", end.code);
}

/// Reaps children that a template had forked but not yet announced when it was killed. They were still in its
/// group, so they were killed with it.
void reap_unknown(pid_t group) {
  siginfo_t dead{};
  // Stop at a process whose pid is the group's number: the number was reused for another template or worker,
  // whose group this now is.
  while (::waitid(P_PGID, static_cast<id_t>(group), &dead, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         dead.si_pid > 0 && dead.si_pid != group)
    ::waitid(P_PID, static_cast<id_t>(std::exchange(dead.si_pid, 0)), &dead, WEXITED | WNOHANG);
}

}  // namespace

worker_template::worker_template(io_thread& io, spawn_request program, callbacks calls)
    : io_(io),
      program_(std::move(program)),
      calls_(std::move(calls)),
      socket_(io.context()),
      next_(io.context()) {
  program_.environment.push_back(fmt::format("{}={}", template_variable, template_socket));
}

worker_template::~worker_template() {
  if (control_) control_->give_up();
  for (const auto& [order, one] : waiting_) static_cast<void>(book_.give_up(one.worker, std::chrono::steady_clock::now()));
  if (!process_) return;
  const pid_t pid = process_->pid();
  process_.reset();
  while (true) {  // Answers about forked workers may still be in the socket.
    auto got = receive_answer(socket_.native_handle());
    if (!got || !*got) break;
    if ((*got)->answer.what == fork_answer::kind::forked) forked(std::move(**got));
  }
  reap_unknown(pid);
}

void worker_template::note(std::string text) {
  text_ = std::move(text);
  calls_.waits(text_);
}

// ---- starts -----------------------------------------------------------------------------------------------

std::shared_ptr<start_control> worker_template::start(std::uint32_t worker, spawn_request request,
                                                      spawner::done then) {
  if (book_.at() == fork_book::stage::declined)
    return io_.spawner().start(std::move(request), std::move(then));
  waiting_worker one{worker, std::move(request), {}, std::move(then)};
  // Duplicate the descriptors, because the caller closes its own.
  for (inherited_fd& fd : one.request.fds) {
    unique_fd kept(::fcntl(fd.ours, F_DUPFD_CLOEXEC, 0));
    if (!kept) {
      one.then(tl::unexpected(os_failure(errc::system, errno, "duplicating a descriptor for a worker")));
      return nullptr;
    }
    fd.ours = kept.get();
    one.descriptors.push_back(std::move(kept));
  }
  waiting_.emplace(book_.add(worker), std::move(one));
  look();
  return nullptr;
}

void worker_template::give_up(std::uint32_t worker) {
  if (const auto it = executing_.find(worker); it != executing_.end() && it->second)
    return it->second->give_up();
  const auto given_up = book_.give_up(worker, std::chrono::steady_clock::now());
  if (!given_up) return;
  refuse({given_up->order}, {errc::system, "the start was abandoned while its template was " + text_, 0});
  // Kill the template if it has not answered for too long, because it hangs. Also kill it if it is still
  // preparing, because no worker needs it any more.
  if (!given_up->kill) return;
  if (control_) control_->give_up();
  if (!process_) return;
  if (book_.at() == fork_book::stage::ready)
    log::warn("supervisor", "killing the template of the workers (pid {}): it has not answered for {} s", process_->pid(), fork_book::answers_within.count());
  process_->signal(SIGKILL);
}

worker_template::waiting_worker worker_template::take(fork_book::number order) {
  return std::move(waiting_.extract(order).mapped());
}

void worker_template::refuse(const std::vector<fork_book::number>& orders, const failure& why) {
  for (const fork_book::number order : orders) take(order).then(tl::unexpected(why));
}

/// Carries out what is due now.
void worker_template::look() {
  if (book_.at() == fork_book::stage::ready) return send_waiting();
  const steady_time when = book_.executes_at();
  if (when == never) return;
  if (book_.must_execute(std::chrono::steady_clock::now())) return execute();
  next_.expires_at(when);
  next_.async_wait([this, alive = std::weak_ptr(alive_)](const boost::system::error_code& status) {
    if (!status && !alive.expired()) look();
  });
}

void worker_template::send_waiting() {
  while (const auto order = book_.to_send()) {
    const waiting_worker& one = waiting_.at(*order);
    fork_order what{*order, ::getpid(), one.worker, static_cast<std::uint32_t>(one.request.fds.size())};
    for (std::size_t i = 0; i < one.request.fds.size(); ++i) what.theirs[i] = one.request.fds[i].theirs;
    what.bound = one.request.cores.empty() ? 0 : 1;
    what.cores = set_of(one.request.cores);
    const auto sent = send_order(socket_.native_handle(), what, one.descriptors);
    // The socket is full, or the template has ended; a full socket gets the order after the next answer.
    if (!sent || !*sent) break;
    book_.sent(*order, std::chrono::steady_clock::now());
  }
}

// ---- the process ------------------------------------------------------------------------------------------

void worker_template::execute() {
  book_.executing();
  note("starting with exec");
  auto ends = make_fork_sockets();
  std::array<int, 2> output{};
  const unique_fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!ends || !null || ::pipe2(output.data(), O_CLOEXEC) != 0) {
    note("");
    return refuse(book_.not_executed(),
                  os_failure(errc::system, errno, "creating the descriptors of a template"));
  }
  const auto socket = std::make_shared<unique_fd>(std::move(ends->first));
  const auto read = std::make_shared<unique_fd>(output[0]);
  const unique_fd write(output[1]);
  spawn_request request = program_;
  request.fds = {
      {write.get(), STDOUT_FILENO}, {write.get(), STDERR_FILENO}, {ends->second.get(), template_socket}};
  // Occupy the descriptor numbers that the workers need, so that no file which the
  // template opens gets one of them.
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
  if (!made) {
    note("");
    return refuse(book_.not_executed(), made.error());
  }
  auto child = child_process::watch(
      io_.context(), std::move(*made).claim(), std::move(output),
      {calls_.output, [this](const exit_report& report, const output_tail& tail) { ended(report, tail); }});
  boost::system::error_code status;
  if (child) socket_.assign(socket.get(), status);
  if (!child || status) {
    note("");
    return refuse(book_.not_executed(),
                  child ? os_failure(errc::system, status.value(), "watching a template") : child.error());
  }
  static_cast<void>(socket.release());
  process_ = std::move(*child);
  note(fmt::format("preparing (pid {}): importing what workers need", process_->pid()));
  listen();
  if (!book_.executed()) process_->signal(SIGKILL);
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
                       if (!*got) {  // no answer, or the end of the socket
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
      book_.ready();
      note(fmt::format("forking (pid {})", process_->pid()));
      calls_.ready();
      break;
    case kind::declined:
      log::warn("supervisor",
                "workers start with exec instead of fork: {}. With [loader] start_method = \"exec\" forking "
                "is not tried",
                printable(got.answer.why.data()));
      return execute_workers();
    case kind::forked: forked(std::move(got)); break;
    case kind::refused:
      if (book_.answered(got.answer.number, std::chrono::steady_clock::now()) == fork_book::meaning::awaited)
        refuse({got.answer.number}, os_failure(errc::system, got.answer.error, "forking a worker"));
  }
  send_waiting();
}

void worker_template::hear_the_rest() {
  while (book_.at() != fork_book::stage::declined && socket_.is_open()) {
    auto got = receive_answer(socket_.native_handle());
    if (!got || !*got) break;
    hear(std::move(**got));
  }
}

void worker_template::forked(received_answer&& got) {
  const fork_book::meaning meaning = book_.answered(got.answer.number, std::chrono::steady_clock::now());
  if (meaning == fork_book::meaning::repeated) return;
  // Signals go to the group, so the group must exist before the first signal. The worker makes this call,
  // too: whichever comes first counts.
  ::setpgid(got.answer.pid, got.answer.pid);
  unclaimed_child made(child{got.answer.pid, std::move(got.pidfd)}, program_.program);
  if (meaning == fork_book::meaning::awaited) take(got.answer.number).then(std::move(made));
}

void worker_template::execute_workers() {
  note("");
  for (const fork_book::number order : book_.declined()) {
    waiting_worker one = take(order);
    // The spawner duplicates the descriptors at once.
    executing_[one.worker] = io_.spawner().start(std::move(one.request), std::move(one.then));
  }
}

void worker_template::ended(const exit_report& report, const output_tail& tail) {
  hear_the_rest();  // answers that the template sent before its end still count
  const auto gone = std::move(process_);
  reap_unknown(gone->pid());
  boost::system::error_code ignored;
  socket_.close(ignored);
  if (book_.at() == fork_book::stage::declined) return;
  note("");
  const fork_book::ending end = book_.ended();
  std::vector<std::uint32_t> lost;
  for (const fork_book::number order : end.lost) lost.push_back(take(order).worker);
  if (end.counts) plan_next(gone->pid(), report);
  look();
  for (const std::uint32_t worker : lost) calls_.ended_for(worker, gone->pid(), report, tail);
}

void worker_template::plan_next(pid_t pid, const exit_report& report) {
  const auto next = calls_.ended();
  if (!next) {
    log::warn("supervisor",
              "the template of the workers (pid {}) ended: {}. It has ended too often ([loader.restart] "
              "intensity), so from now on workers start with exec, not fork",
              pid, text_of(report));
    return execute_workers();
  }
  const auto wait = std::chrono::duration<double>(*next - std::chrono::steady_clock::now()).count();
  log::warn("supervisor", "the template of the workers (pid {}) ended: {}; the next one starts {}", pid,
            text_of(report), wait >= 0.05 ? fmt::format("in {:.1f} s", wait) : "now");
  book_.execute_from(*next);
}

}  // namespace penstock::process
