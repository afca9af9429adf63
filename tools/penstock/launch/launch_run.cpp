#include "tools/penstock/launch/launch_run.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/base/units.hpp"
#include "runtime/control/session_record.hpp"
#include "runtime/process/process_facts.hpp"
#include "tools/penstock/launch/stray_processes.hpp"

#include <boost/asio/post.hpp>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

namespace penstock::cli {
namespace {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;

// Killed processes are gone within milliseconds, unless they are in an uninterruptible system call.
constexpr auto strays_patience = std::chrono::milliseconds(1000);
// The descriptor number of the channel in a rank.
constexpr int channel_fd = 3;
constexpr std::size_t lost_kept = 64;
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
      histories_(work_.rules.ranks),
      oom_(process::oom_evidence_file()),
      timer_(io.context()) {}

launch_run::~launch_run() {
  std::promise<void> gone;
  boost::asio::post(io_.context(), [&] {
    timer_.cancel();
    alive_.reset();
    ranks_.clear();
    gone.set_value();
  });
  gone.get_future().wait();
}

launch_result launch_run::run() {
  boost::asio::post(io_.context(), [this] { act(); });
  auto over = over_.get_future();
  if (!work_.state_file) {
    over.wait();
  } else {
    while (over.wait_for(work_.state_every) != std::future_status::ready) save_state();
    save_state();
  }
  launch_result made;
  std::promise<void> copied;
  boost::asio::post(io_.context(), [&] {
    made = {book_.outcome(), book_.first_cause(), book_.restarts(), book_.ranks(),
            last_lines_,     histories_,          state_trouble_};
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
    if (const auto* order = std::get_if<start_rank>(&command)) start(*order);
    if (const auto* order = std::get_if<signal_rank>(&command)) signal(*order);
    if (const auto* lost = std::get_if<leave_behind>(&command)) tell_end(lost->rank);
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
  timer_.expires_at(std::min(book_.next_deadline(), look_at_));
  timer_.async_wait([this](const boost::system::error_code& status) {
    if (status) return;
    if (clock::now() >= look_at_) look();
    act();
  });
}

void launch_run::look() {
  look_at_ = clock::now() + book_.tick();
  // A process that has just started is not known as a rank yet: reaping strays now could reap it.
  if (starting_ == 0) reap_strays([this](pid_t pid) { return is_rank(pid); });
  if (work_.resumable) oom_.look(clock::now());
  std::vector<rank_sign> signs;
  for (std::uint32_t rank = 0; work_.resumable && rank < ranks_.size(); ++rank) {
    const auto& child = ranks_[rank].child;
    if (!child || !child->running()) continue;
    const auto facts = process::look_at(child->pid());
    signs.push_back({rank, facts && facts->traced, process::wait_channel(child->pid())});
  }
  book_.look(clock::now(), signs, io_.spawner().current());
}

void launch_run::signal(const signal_rank& order) {
  const rank_process& r = ranks_[order.rank];
  if (r.child) return r.child->signal(order.signal);
  if (r.start && order.signal == SIGKILL) r.start->give_up();
}

void launch_run::start_failed(std::uint32_t rank, std::string why) {
  boost::asio::post(io_.context(), [this, rank, why = std::move(why)] {
    tell_refused(rank, why);
    act();
  });
}

result<unique_fd> launch_run::open_channel(const start_rank& order, unique_fd& theirs) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return refuse_os(errc::system, errno, "making a channel to a rank");
  unique_fd ours(ends[0]);
  theirs.reset(ends[1]);
  rank_history& history = histories_[order.rank];
  const bool again = !history.state().empty();
  if (again) history.begin_again();
  rank_start begin = again ? rank_start{history.state(), history.delivered()} : rank_start{work_.state, 0};
  begin.alone = order.alone;
  begin.files = work_.files;
  begin.lost = lost_;
  const std::string line = line_of(begin);
  if (::send(ours.get(), line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size()))
    return refuse_os(errc::system, errno, "sending a rank its first position");
  return ours;
}

void launch_run::start(const start_rank& order) {
  const std::uint32_t rank = order.rank;
  if (work_.resumable && book_.ranks()[rank].starts > 1) remove_strays_of(rank);
  auto out = make_pipe();
  auto err = make_pipe();
  if (!out || !err) return start_failed(rank, (out ? err.error() : out.error()).message);
  launch_names names = work_.names;
  names.restarts = book_.rounds_restarted();
  names.starts = book_.ranks()[rank].starts - 1;
  process::spawn_request request{work_.program,
                                 work_.arguments(rank),
                                 rank_environment(work_.environment, names, work_.places, rank),
                                 {{out->write.get(), 1}, {err->write.get(), 2}},
                                 work_.places[rank].cores};
  unique_fd theirs;
  unique_fd channel;
  if (work_.resumable) {
    auto made = open_channel(order, theirs);
    if (!made) return start_failed(rank, made.error().message);
    channel = std::move(*made);
    request.fds.push_back({theirs.get(), channel_fd});
    request.environment.push_back(fmt::format("{}={}", launch_channel_variable, channel_fd));
  }
  // std::function must be copyable.
  auto ends =
      std::make_shared<rank_ends>(rank_ends{std::move(out->read), std::move(err->read), std::move(channel)});
  ++starting_;
  auto done = [this, &context = io_.context(), alive = std::weak_ptr(alive_), rank,
               ends](result<process::unclaimed_child> child) {
    auto made = std::make_shared<result<process::unclaimed_child>>(std::move(child));
    boost::asio::post(context, [this, alive, rank, ends, made] {
      if (alive.expired()) return;
      --starting_;
      started(rank, std::move(*made), std::move(*ends));
      act();
    });
  };
  ranks_[rank].begun = std::chrono::system_clock::now();
  ranks_[rank].start = io_.spawner().start(std::move(request), std::move(done));
}

void launch_run::started(std::uint32_t rank, result<process::unclaimed_child> child, rank_ends ends) {
  rank_process& r = ranks_[rank];
  r.start.reset();
  if (!child) return tell_refused(rank, child.error().message);
  if (book_.ranks()[rank].now != rank_facts::state::starting)
    return;  // given up: destroying `child` kills it
  auto watched = process::child_process::watch(
      io_.context(), std::move(*child).claim(), {},
      {{},
       [this, rank](const process::exit_report& end, const process::output_tail&) { exited(rank, end); }});
  if (!watched) return tell_refused(rank, watched.error().message);
  r.child = std::move(*watched);
  r.out = std::make_unique<rank_output>(io_.context(), std::move(ends.out),
                                        work_.all_to_stderr ? STDERR_FILENO : STDOUT_FILENO, prefix_of(rank),
                                        writer_);
  r.err = std::make_unique<rank_output>(io_.context(), std::move(ends.err), STDERR_FILENO, prefix_of(rank),
                                        writer_);
  if (ends.channel) {
    r.news =
        std::make_unique<rank_news>(io_.context(), std::move(ends.channel),
                                    [this, rank](const rank_progress& progress) { heard(rank, progress); });
  }
  book_.started(rank, r.child->pid());
}

void launch_run::heard(std::uint32_t rank, const rank_progress& progress) {
  histories_[rank].heard(progress);
  const steady_time now = clock::now();
  book_.heard(rank, progress.batches, progress.beats, now);
  if (progress.group == group_end_word::none) return;
  book_.group_over(
      rank, progress.group == group_end_word::finished ? launch_outcome::finished : launch_outcome::stopped,
      now);
}

void launch_run::exited(std::uint32_t rank, const process::exit_report& end) {
  rank_process& r = ranks_[rank];
  r.out->finish();
  r.err->finish();
  if (r.news) r.news->finish();
  last_lines_[rank] = r.err->last_lines(lines_in_report);
  const bool killed = end.ending == process::exit_report::how::signalled && end.code == SIGKILL;
  const bool by_oom_killer = work_.resumable && killed && oom_.explains_death(clock::now());
  control::note_process_end(book_.ranks()[rank].pid, r.begun, end_text(end));
  book_.exited(rank, end, clock::now(), by_oom_killer ? oom_killer::did_it : oom_killer::did_not);
  tell_end(rank);
  // Destroy the object later, because its callback is still running.
  boost::asio::post(io_.context(), [this] { act(); });
}

/// Kills what this rank has left behind. A session's workers exit by themselves when it is gone, but its GPU owner
/// holds the GPU until it has exited.
void launch_run::remove_strays_of(std::uint32_t rank) {
  ranks_[rank] = {};
  kill_strays_with({fmt::format("RANK={}", rank), "PENSTOCK_GROUP_ADDR=" + work_.names.group_address},
                   strays_patience);
}

void launch_run::tell_refused(std::uint32_t rank, const std::string& why) {
  if (book_.ranks()[rank].now != rank_facts::state::starting) return;  // the rank was given up meanwhile
  book_.start_failed(rank, why, clock::now());
  tell_end(rank);
}

/// Sends the lost processes to all running ranks. Each shows them
/// in its status, and rank 0 adds them to its report of the loss.
void launch_run::note_lost(std::uint32_t rank) {
  const rank_facts& r = book_.ranks()[rank];
  const lost_process_report lost{rank, r.pid, r.end, std::chrono::system_clock::now()};
  if (lost_.size() >= lost_kept) lost_.erase(lost_.begin());
  lost_.push_back(lost);
  for (rank_process& one : ranks_) {
    if (one.news && one.child && one.child->running()) one.news->send(line_of_lost({lost}));
  }
}

void launch_run::tell_end(std::uint32_t rank) {
  const rank_facts& r = book_.ranks()[rank];
  const std::string what =
      r.pid > 0 ? fmt::format("(pid {}) ended", r.pid) : std::string("could not be started");
  if (r.restarts_at != never) {
    note_lost(rank);
    const auto wait = std::max(r.restarts_at - clock::now(), steady_time::duration::zero());
    work_.tell(fmt::format("rank {} {}: {}; starting it again{}", rank, what, r.end,
                           wait > 10ms ? " in " + duration_for_people(wait) : ""));
    return;
  }
  const auto& cause = book_.first_cause();
  if (!cause || cause->rank != rank || r.code == 0 || cause->pid != r.pid) return;
  note_lost(rank);  // the status of the next round shows the loss
  work_.tell(fmt::format("rank {} {}: {}; ending the other ranks", rank, what, cause->text));
}

void launch_run::clear_round() {
  for (rank_process& r : ranks_) r = {};
  const std::size_t killed = kill_strays(strays_patience);
  if (killed > 0)
    work_.tell(
        fmt::format("killed {} that the ranks had left behind", counted(killed, "process", "processes")));
  if (!work_.resumable || book_.over()) return;
  // All ranks restart from a step that all have delivered.
  if (const auto state = group_state_now(); state && !state->empty()) {
    for (rank_history& history : histories_) history.begin_from(*state);
  }
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
