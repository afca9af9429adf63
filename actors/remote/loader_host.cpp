#include "actors/remote/loader_host.hpp"

#include "actors/remote/host_security.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/text.hpp"
#include "runtime/group/this_process.hpp"
#include "runtime/process/cores.hpp"
#include "runtime/process/spawn.hpp"

#include <boost/asio/post.hpp>
#include <fmt/ranges.h>

#include <algorithm>
#include <future>
#include <utility>

namespace penstock::hosts {
namespace {

using namespace std::chrono_literals;

constexpr std::ptrdiff_t unknown_calls_at_once = 64;
constexpr std::uint64_t unknown_calls_logged = 10;  // more could be a flood
constexpr auto share_every = 200ms;

}  // namespace

loader_host::loader_host(const host_settings& settings) : settings_(settings), shares_({.workers = settings.workers}) {}

result<std::unique_ptr<loader_host>> loader_host::open(const host_settings& settings) {
  const bool joins = settings.listen.empty();
  auto address = parse_address(joins ? settings.session : settings.listen);
  if (!address) return tl::unexpected(std::move(address.error()));
  auto tls = tls_of_hosts(connection_side::host, joins ? connected_by::host : connected_by::session, *address,
                          {settings.secret_file, settings.insecure, "give --secret-file, or set [loader.hosts] secret_file,"});
  if (!tls) return tl::unexpected(std::move(tls.error()));
  if (!settings.dataset_program.empty()) {
    auto found = process::find_program(settings.dataset_program.front());
    if (!found) return tl::unexpected(std::move(found.error()));
  }
  auto lifeline = process::lifeline::create();
  if (!lifeline) return tl::unexpected(std::move(lifeline.error()));
  auto made = std::unique_ptr<loader_host>(new loader_host(settings));
  made->lifeline_ = std::move(*lifeline);
  made->io_ = std::make_unique<process::io_thread>();
  made->datasets_ = std::make_unique<host_datasets>(*made->io_, settings.data, settings.program, settings.dataset_program);
  if (!joins) {
    auto door = host_door::listen(*address);
    if (!door) return tl::unexpected(std::move(door.error()));
    made->door_ = std::move(*door);
  }
  host_facts& facts = made->facts_;
  facts.io = made->io_.get();
  facts.address = std::move(*address);
  facts.tls = std::move(*tls);
  facts.lifeline = made->lifeline_.read_end.get();
  facts.version = settings.version;
  facts.name = settings.name.empty() ? group::host_name() : settings.name;
  facts.process = group::number_of_this_process();
  facts.program_facts = settings.program.facts;
  facts.workers = settings.workers;
  facts.cores = process::usable_cores();
  return made;
}

loader_host::~loader_host() {
  datasets_->give_up();
  if (door_) door_->close();
  for (const auto& one : connections_) one->leave(true);
  connections_.clear();
  datasets_.reset();
  // Twice: what is destroyed on the io thread may leave the rest of its end to that thread.
  for (int i = 0; i < 2; ++i) {
    std::promise<void> done;
    boost::asio::post(io_->context(), [&] { done.set_value(); });
    done.get_future().wait();
  }
}

connection_listener loader_host::listener() {
  return {[this](const session_offer& offer) { return datasets_->prepare(offer); },
          [this](const session_calls& call) { return admit(call); },
          [this](session_number session, const std::atomic<bool>& left) { released(session, left); },
          [this](session_number session) {
            const std::lock_guard hold(mutex_);
            return shares_.offer(session);
          },
          [this](session_number session, nanoseconds in_all) {
            const std::lock_guard hold(mutex_);
            shares_.waited(session, in_all, now());
          },
          [this](const std::string& session, session_number number) { joined(session, number); },
          [this] { sent_away(); },
          [this](const std::string& why, bool unknown) { trouble(why, unknown); },
          [this](std::optional<failure> failed, session_number session) { ended(std::move(failed), session); }};
}

result<void> loader_host::run() {
  std::unique_lock hold(mutex_);
  if (door_) {
    log::info("host", "waiting for a session at {} with {}{}", door_->where(), counted(settings_.workers, "worker"),
              facts_.tls ? "" : ", without a secret: whoever reaches that port may use them");
    door_->open([this](accepted_call call) { accept(std::move(call)); });
    serve_callers(hold);
  } else {
    for (std::uint32_t i = 0; i < settings_.workers; ++i) connections_.push_back(std::make_unique<host_connection>(facts_, i, listener()));
    changed_.wait(hold, [this] { return ended_ == settings_.workers || failed_; });
  }
  if (failed_) return tl::unexpected(*failed_);
  return {};
}

void loader_host::leave(bool at_once) {
  const std::lock_guard hold(mutex_);
  leaves_ = true;
  datasets_->give_up();
  for (const auto& one : connections_) one->leave(at_once);
  changed_.notify_all();
}

// ---- being called -------------------------------------------------------------------------------------------

/// On the door's thread.
void loader_host::accept(accepted_call call) {
  const std::lock_guard hold(mutex_);
  if (leaves_) return;
  const auto unknown = [](const auto& one) { return !one->admitted() && !one->over() && !one->was_cut(); };
  if (std::ranges::count_if(connections_, unknown) >= unknown_calls_at_once) (*std::ranges::find_if(connections_, unknown))->cut();
  connections_.push_back(std::make_unique<host_connection>(facts_, calls_++, listener(), std::move(call)));
  changed_.notify_all();
}

/// Until the host has left.
void loader_host::serve_callers(std::unique_lock<std::mutex>& hold) {
  const auto is_done = [this] { return failed_ || (leaves_ && connections_.empty()); };
  const auto is_over = [](const auto& one) { return one->over(); };
  while (!is_done()) {
    const auto has_news = [&] { return is_done() || std::ranges::any_of(connections_, is_over); };
    if (connections_.empty())
      changed_.wait(hold, [&] { return is_done() || !connections_.empty(); });
    else
      changed_.wait_for(hold, share_every, has_news);
    remove_ended(hold);
    share();
  }
}

/// Tells the shares what was measured. Has connections leave whose workers other sessions are to get.
void loader_host::share() {
  if (leaves_) return;
  for (const session_number session : shares_.sessions()) {
    const auto has_work = [&](const auto& one) { return one->session() == session && one->is_busy(); };
    shares_.worked(session, static_cast<std::uint32_t>(std::ranges::count_if(connections_, has_work)), now());
  }
  shares_.advance(now());
  for (const session_number session : shares_.sessions()) {
    const std::uint32_t surplus = shares_.surplus(session);
    if (surplus == 0) continue;
    log::info("host", "session {} hands over {} to other sessions", printable(guests_[session].name), counted(surplus, "worker"));
    for (std::uint32_t n = surplus; n > 0; --n) {
      const auto stays = [&](const auto& one) { return one->session() == session && !one->is_leaving() && !one->over(); };
      const auto last = std::ranges::find_if(connections_.rbegin(), connections_.rend(), stays);
      if (last == connections_.rend()) break;  // it has ended: released() is about to be called
      shares_.leaving(session);
      (*last)->leave(false);
    }
  }
}

/// On a connection's thread.
std::string loader_host::admit(const session_calls& call) {
  const std::lock_guard hold(mutex_);
  if (leaves_) return fmt::format("{} is leaving", facts_.name);
  if (shares_.calls(call.process, now())) {
    guests_[call.process].name = call.session;
    return {};
  }
  const std::uint32_t has = shares_.held(call.process);
  if (has > 0) return fmt::format("{} gives this session {} of its {}", facts_.name, has, counted(settings_.workers, "worker"));
  std::vector<std::string> others;
  for (const auto& [number, one] : guests_) others.push_back(printable(one.name));
  return fmt::format("{} has no free worker yet: it works for {}", facts_.name, fmt::join(others, ", "));
}

void loader_host::released(session_number session, const std::atomic<bool>& left) {
  const std::lock_guard hold(mutex_);
  shares_.ended(session, left, now());
  const auto known = shares_.sessions();
  if (std::ranges::find(known, session) != known.end()) return;
  const guest gone = std::exchange(guests_[session], {});
  guests_.erase(session);
  if (gone.announced && !leaves_)
    log::info("host", "session {} is gone{}", printable(gone.name), guests_.empty() ? "; waiting for the next one" : "");
}

void loader_host::remove_ended(std::unique_lock<std::mutex>& hold) {
  std::vector<std::unique_ptr<host_connection>> over;
  for (auto& one : connections_) {
    if (one->over()) over.push_back(std::move(one));
  }
  if (over.empty()) return;
  std::erase(connections_, nullptr);
  hold.unlock();
  over.clear();  // waits for their threads, which may be calling ended()
  datasets_->forget_unused();
  hold.lock();
}

// ---- calls of connections -----------------------------------------------------------------------------------------

void loader_host::joined(const std::string& session, session_number number) {
  const std::lock_guard hold(mutex_);
  troubles_.forget();
  if (door_) {
    if (!std::exchange(guests_[number].announced, true)) log::info("host", "working for session {}", printable(session));
  } else if (joined_++ % settings_.workers == 0) {
    log::info("host", "joined session {} at {} as {} with {}", printable(session), text_of(facts_.address), facts_.name,
              counted(settings_.workers, "worker"));
  }
}

void loader_host::sent_away() {
  {
    const std::lock_guard hold(mutex_);
    if (leaves_) return;  // every connection reports it
    log::info("host", "the session asks this host to leave: workers finish their batches");
  }
  leave(false);
}

void loader_host::trouble(const std::string& why, bool unknown) {
  const std::lock_guard hold(mutex_);
  if (unknown && ++unknown_ > unknown_calls_logged) return;
  if (troubles_.is_news(why, now())) log::warn("host", "{}{}", why, door_ ? "" : "; trying again");
}

void loader_host::ended(std::optional<failure> failed, session_number session) {
  const std::lock_guard hold(mutex_);
  ++ended_;
  const bool serves_others = std::ranges::any_of(guests_, [&](const auto& one) { return one.first != session; });
  if (failed && serves_others)
    log::warn("host", "no worker can work for one of the sessions here: {}", failed->message);
  else if (failed && !failed_)
    failed_ = std::move(failed);
  changed_.notify_all();
}

}  // namespace penstock::hosts
