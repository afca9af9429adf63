#include "tools/penstock/launch/launch_run.hpp"

#include "runtime/base/counted.hpp"
#include "tools/penstock/launch/stray_processes.hpp"

#include <boost/asio/post.hpp>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

namespace penstock::cli {
namespace {

using clock = std::chrono::steady_clock;

// How often to reap adopted processes while nothing else is due.
constexpr auto look_every = std::chrono::seconds(1);
// Killed processes are gone within milliseconds, unless a system call cannot be interrupted.
constexpr auto strays_patience = std::chrono::milliseconds(1000);
constexpr std::size_t lines_in_report = process::output_tail::lines_shown;

struct pipe_ends {
  unique_fd read;
  unique_fd write;
};

result<pipe_ends> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return refuse_os(errc::system, errno, "making a pipe for a rank's output");
  return pipe_ends{unique_fd(ends[0]), unique_fd(ends[1])};
}

}  // namespace

launch_run::launch_run(process::io_thread& io, launch_work work)
    : io_(io),
      work_(std::move(work)),
      book_(work_.rules),
      writer_([this] {
        boost::asio::post(io_.context(), [this] {
          for (rank_process& r : ranks_) {
            if (r.out) r.out->resume();
            if (r.err) r.err->resume();
          }
        });
      }),
      ranks_(work_.rules.ranks),
      last_lines_(work_.rules.ranks),
      timer_(io.context()) {}

launch_run::~launch_run() {
  std::promise<void> gone;
  boost::asio::post(io_.context(), [&] {
    timer_.cancel();
    ranks_.clear();
    gone.set_value();
  });
  gone.get_future().wait();
}

launch_result launch_run::run() {
  boost::asio::post(io_.context(), [this] { act(); });
  over_.get_future().wait();
  launch_result made;
  std::promise<void> copied;
  boost::asio::post(io_.context(), [&] {
    made = {book_.outcome(), book_.first_cause(), book_.restarts(), book_.ranks(), last_lines_};
    copied.set_value();
  });
  copied.get_future().wait();
  return made;
}

void launch_run::stop(int signal, bool at_once) {
  boost::asio::post(io_.context(), [this, signal, at_once] {
    book_.stop(signal, at_once, clock::now());
    act();
  });
}

// ---- the book's commands ----------------------------------------------------------------------------------

void launch_run::act() {
  for (const launch_command& command : book_.advance(clock::now())) {
    if (const auto* order = std::get_if<start_rank>(&command)) start(order->rank);
    if (const auto* order = std::get_if<signal_rank>(&command)) {
      if (ranks_[order->rank].child) ranks_[order->rank].child->signal(order->signal);
    }
    if (std::holds_alternative<cli::clear_round>(command)) clear_round();
  }
  if (book_.over() && !std::exchange(told_over_, true)) over_.set_value();
  arm();
}

void launch_run::arm() {
  if (book_.over()) {
    timer_.cancel();
    return;
  }
  timer_.expires_at(std::min(book_.next_deadline(), clock::now() + look_every));
  timer_.async_wait([this](const boost::system::error_code& status) {
    if (status) return;
    reap_strays([this](pid_t pid) { return is_rank(pid); });
    act();
  });
}

void launch_run::start(std::uint32_t rank) {
  auto out = make_pipe();
  auto err = make_pipe();
  if (!out || !err) {
    const std::string why = out ? err.error().message : out.error().message;
    boost::asio::post(io_.context(), [this, rank, why] {
      book_.start_failed(rank, why, clock::now());
      act();
    });
    return;
  }
  launch_names names = work_.names;
  names.restarts = book_.restarts();
  process::spawn_request request{work_.program,
                                 work_.arguments(rank),
                                 rank_environment(work_.environment, names, work_.places, rank),
                                 {{out->write.get(), 1}, {err->write.get(), 2}},
                                 work_.places[rank].cores};
  // std::function must be copyable.
  auto ends = std::make_shared<std::pair<unique_fd, unique_fd>>(std::move(out->read), std::move(err->read));
  io_.spawner().start(std::move(request), [this, rank, ends](result<process::unclaimed_child> child) {
    auto made = std::make_shared<result<process::unclaimed_child>>(std::move(child));
    boost::asio::post(io_.context(), [this, rank, ends, made] {
      started(rank, std::move(*made), std::move(ends->first), std::move(ends->second));
      act();
    });
  });
}

void launch_run::started(std::uint32_t rank, result<process::unclaimed_child> child, unique_fd out,
                         unique_fd err) {
  if (!child) return book_.start_failed(rank, child.error().message, clock::now());
  rank_process& r = ranks_[rank];
  auto watched = process::child_process::watch(
      io_.context(), std::move(*child).claim(), {},
      {{},
       [this, rank](const process::exit_report& end, const process::output_tail&) { exited(rank, end); }});
  if (!watched) return book_.start_failed(rank, watched.error().message, clock::now());
  r.child = std::move(*watched);
  r.out = std::make_unique<rank_output>(io_.context(), std::move(out),
                                        work_.all_to_stderr ? STDERR_FILENO : STDOUT_FILENO, prefix_of(rank),
                                        writer_);
  r.err =
      std::make_unique<rank_output>(io_.context(), std::move(err), STDERR_FILENO, prefix_of(rank), writer_);
  book_.started(rank, r.child->pid());
}

void launch_run::exited(std::uint32_t rank, const process::exit_report& end) {
  rank_process& r = ranks_[rank];
  r.out->finish();
  r.err->finish();
  last_lines_[rank] = r.err->last_lines(lines_in_report);
  book_.exited(rank, end, clock::now());
  tell_end(rank);
  // Destroy it later, because its callback is running now.
  boost::asio::post(io_.context(), [this] { act(); });
}

void launch_run::tell_end(std::uint32_t rank) const {
  const rank_facts& r = book_.ranks()[rank];
  const auto& cause = book_.first_cause();
  if (!cause || cause->rank != rank || r.code == 0 || cause->pid != r.pid) return;
  work_.tell(fmt::format("rank {} (pid {}) ended: {}; ending the other ranks", rank, r.pid, r.end));
}

void launch_run::clear_round() {
  for (rank_process& r : ranks_) r = {};
  const std::size_t killed = kill_strays(strays_patience);
  if (killed > 0)
    work_.tell(
        fmt::format("killed {} that the ranks had left behind", counted(killed, "process", "processes")));
}

std::string launch_run::prefix_of(std::uint32_t rank) const {
  if (!work_.prefixed) return {};
  if (work_.colours.empty()) return fmt::format("[rank{}] ", rank);
  return fmt::format("{}[rank{}]\033[0m ", work_.colours[rank % work_.colours.size()], rank);
}

bool launch_run::is_rank(pid_t pid) const {
  return std::ranges::any_of(ranks_,
                             [pid](const rank_process& r) { return r.child && r.child->pid() == pid; });
}

}  // namespace penstock::cli
