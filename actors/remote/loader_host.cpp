#include "actors/remote/loader_host.hpp"

#include "actors/remote/host_security.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/group/this_process.hpp"
#include "runtime/process/process_facts.hpp"
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
constexpr std::uint64_t unknown_calls_logged = 10;  // further ones could be a flood
constexpr auto share_every = 200ms;
constexpr std::string_view remedy_of_hosts =
    "give --secret-file with the session's secret, or --insecure if the session has none and any machine may reach that port";

}  // namespace

loader_host::loader_host(const host_settings& settings) : settings_(settings), shares_({.workers = settings.workers}) {}

result<std::unique_ptr<loader_host>> loader_host::open(const host_settings& settings) {
  const bool joins = settings.listen.empty();
  std::vector<group::group_address> addresses;
  for (const std::string& one : joins ? settings.sessions : std::vector{settings.listen}) {
    auto address = parse_address(one);
    if (!address) return tl::unexpected(std::move(address.error()));
    if (std::ranges::find(addresses, *address) != addresses.end())
      return refuse(errc::config, "the address '{}' is given twice", printable(one));
    addresses.push_back(std::move(*address));
  }
  auto tls = tls_of_hosts(connection_side::host, joins ? connected_by::host : connected_by::session, addresses.front(),
                          {settings.secret_file, settings.insecure, remedy_of_hosts});
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
  if (joins) {
    for (group::group_address& one : addresses) made->targets_.push_back({std::move(one)});
  } else {
    auto door = host_door::listen(addresses.front());
    if (!door) return tl::unexpected(std::move(door.error()));
    made->door_ = std::move(*door);
  }
  host_facts& facts = made->facts_;
  facts.io = made->io_.get();
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
  // Wait for the io thread twice: destructors that run there may post more work to it.
  for (int i = 0; i < 2; ++i) {
    std::promise<void> done;
    boost::asio::post(io_->context(), [&] { done.set_value(); });
    done.get_future().wait();
  }
}

connection_listener loader_host::listener() {
  return {[this](const session_offer& offer) { return datasets_->prepare(offer); },
          [this](session_number session, const std::string& name) { return admit(session, name); },
          [this](session_number session, const std::atomic<bool>& left) { released(session, left); },
          [this](session_number session) {
            const std::lock_guard hold(mutex_);
            return shares_.offer(session);
          },
          [this](session_number session, const ping& said) {
            const std::lock_guard hold(mutex_);
            shares_.waited(session, nanoseconds(said.waited_ns), now());
            shares_.wants_at_most(session, said.workers);
          },
          [this](session_number session, const std::string& name, nanoseconds wait) { has_joined(session, name, wait); },
          [this](session_number session) { sent_away(session); },
          [this](const connection_end& end) { ended(end); }};
}

result<void> loader_host::run() {
  std::unique_lock hold(mutex_);
  if (door_) {
    log::info("host", "waiting for a session at {} with {}{}", door_->where(), counted(settings_.workers, "worker"),
              facts_.tls ? "" : ", without a secret: any machine that reaches that port may use them");
    door_->open([this](accepted_call call) { accept(std::move(call)); });
  }
  serve(hold);
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

bool loader_host::is_done() const {
  if (door_ && failed_) return true;
  const bool none_left = door_ ? leaves_ : leaves_ || std::ranges::all_of(targets_, [](const target& one) { return one.attempts.over(); });
  return none_left && connections_.empty();
}

/// Runs until the host has left or, if it joins sessions, has no session left.
void loader_host::serve(std::unique_lock<std::mutex>& hold) {
  const auto is_over = [](const auto& one) { return one->over(); };
  while (!is_done()) {
    join_more();
    const auto has_news = [&] { return std::exchange(joined_, false) || is_done() || std::ranges::any_of(connections_, is_over); };
    if (connections_.empty() && door_ && shares_.sessions().empty())
      changed_.wait(hold, [&] { return is_done() || !connections_.empty(); });
    else
      changed_.wait_for(hold, share_every, has_news);
    remove_ended(hold);
    share();
  }
}

void loader_host::remove_ended(std::unique_lock<std::mutex>& hold) {
  std::vector<std::unique_ptr<host_connection>> over;
  for (auto& one : connections_) {
    if (one->over()) over.push_back(std::move(one));
  }
  if (over.empty()) return;
  std::erase(connections_, nullptr);
  // A joined session that was lost may come back: keep its listing and its code until it is over.
  const bool forgets = door_ || std::ranges::any_of(targets_, [](const target& one) { return one.attempts.over(); });
  hold.unlock();
  over.clear();  // waits for their threads, which may be calling ended()
  if (forgets) datasets_->forget_unused();
  hold.lock();
}

// ---- connections --------------------------------------------------------------------------------------------

void loader_host::join_more() {
  if (leaves_) return;
  for (session_number number = 1; number <= targets_.size(); ++number) {
    target& to = target_of(number);
    connections_now there{.held = shares_.held(number), .offer = shares_.offer(number)};
    for (const auto& one : connections_) {
      if (one->joins() != number || one->over()) continue;
      ++there.all;
      there.connecting += one->admitted() ? 0 : 1;
    }
    for (std::uint32_t n = to.attempts.wanted(there, now()); n > 0; --n)
      connections_.push_back(
          std::make_unique<host_connection>(facts_, connections_made_++, listener(), session_to_join{to.address, number}));
  }
}

/// Called on the door's thread.
void loader_host::accept(accepted_call call) {
  const std::lock_guard hold(mutex_);
  if (leaves_) return;
  const auto unknown = [](const auto& one) { return !one->admitted() && !one->over() && !one->was_cut(); };
  if (std::ranges::count_if(connections_, unknown) >= unknown_calls_at_once) (*std::ranges::find_if(connections_, unknown))->cut();
  connections_.push_back(std::make_unique<host_connection>(facts_, connections_made_++, listener(), std::move(call)));
  changed_.notify_all();
}

/// Feeds measurements to the shares, and asks connections to leave if other sessions should get their
/// workers.
void loader_host::share() {
  if (leaves_) return;
  for (const session_number session : shares_.sessions()) {
    const auto has_work = [&](const auto& one) { return one->session() == session && one->is_busy(); };
    shares_.worked(session, static_cast<std::uint32_t>(std::ranges::count_if(connections_, has_work)), now());
  }
  shares_.advance(now());
  for (const session_number session : shares_.sessions()) hand_over(session);
}

/// Connections without a worker leave first: the session was scaled down by an operator and does not use
/// them.
void loader_host::hand_over(session_number session) {
  const std::uint32_t surplus = shares_.surplus(session);
  if (surplus == 0) return;
  log::info("host", "session {} hands over {} to other sessions", printable(guests_[session].name), counted(surplus, "worker"));
  for (std::uint32_t n = surplus; n > 0; --n) {
    const auto stays = [&](const auto& one) { return one->session() == session && !one->is_leaving() && !one->over(); };
    const auto rests = [&](const auto& one) { return stays(one) && !one->has_worker(); };
    auto last = std::ranges::find_if(connections_.rbegin(), connections_.rend(), rests);
    if (last == connections_.rend()) last = std::ranges::find_if(connections_.rbegin(), connections_.rend(), stays);
    if (last == connections_.rend()) return;  // the connection has ended: released() is about to be called
    shares_.leaving(session);
    (*last)->leave(false);
  }
}

// ---- sessions -----------------------------------------------------------------------------------------------

/// Whether another session has workers of this host, waits for them, or is one that the host joins.
bool loader_host::serves_others(session_number session) const {
  const auto is_other = [&](session_number one) { return one != session && !shares_.is_dismissed(one); };
  if (std::ranges::any_of(shares_.sessions(), is_other)) return true;
  for (session_number one = 1; one <= targets_.size(); ++one) {
    if (one != session && !targets_[one - 1].attempts.over()) return true;
  }
  return false;
}

/// Called on a connection's thread.
std::string loader_host::admit(session_number session, const std::string& name) {
  const std::lock_guard hold(mutex_);
  if (leaves_) return fmt::format("{} is leaving", facts_.name);
  if (shares_.calls(session, now())) {
    guests_[session].name = name;
    return {};
  }
  if (shares_.is_dismissed(session)) return fmt::format("{} has left this session on request", facts_.name);
  const std::uint32_t has = shares_.held(session);
  if (has > 0) return fmt::format("{} gives this session {} of its {}", facts_.name, has, counted(settings_.workers, "worker"));
  std::vector<std::string> others;
  for (const auto& [number, one] : guests_) others.push_back(printable(one.name));
  return fmt::format("{} has no free worker yet: its workers serve {}", facts_.name, fmt::join(others, ", "));
}

void loader_host::has_joined(session_number session, const std::string& name, nanoseconds wait) {
  const std::lock_guard hold(mutex_);
  guest& of = guests_[session];
  of.name = name;
  troubles_[door_ ? 0 : session].forget();
  if (!door_) target_of(session).attempts.joined(wait);
  joined_ = true;
  changed_.notify_all();
  if (std::exchange(of.announced, true)) return;
  if (door_)
    log::info("host", "working for session {}", printable(name));
  else
    log::info("host", "joined session {} at {} as {} with {}", printable(name), text_of(target_of(session).address), facts_.name,
              counted(shares_.offer(session), "worker"));
}

void loader_host::released(session_number session, const std::atomic<bool>& left) {
  const std::lock_guard hold(mutex_);
  shares_.ended(session, left, now());
  const auto is_of_it = [&](const auto& one) { return one->session() == session && !one->over(); };
  if (std::ranges::any_of(connections_, is_of_it)) return;
  const guest gone = std::exchange(guests_[session], {});
  guests_.erase(session);
  if (!gone.announced || leaves_) return;
  if (door_) log::info("host", "session {} is gone{}", printable(gone.name), guests_.empty() ? "; waiting for the next one" : "");
}

/// Acts only once: every connection of the session calls it.
void loader_host::sent_away(session_number session) {
  {
    const std::lock_guard hold(mutex_);
    if (leaves_ || shares_.is_dismissed(session)) return;
    const bool stays = serves_others(session);
    log::info("host", "session {} asks this host to leave: its workers finish their batches{}", printable(guests_[session].name),
              stays ? "; other sessions keep this host" : "");
    shares_.dismiss(session);
    if (!door_) target_of(session).attempts.finish();
    if (stays) return hand_over(session);
  }
  leave(false);
}

// ---- ends of connections --------------------------------------------------------------------------------------

void loader_host::trouble(session_number session, const std::string& why) {
  if (troubles_[session].is_news(why, now())) log::warn("host", "{}{}", why, door_ ? "" : "; trying again");
}

void loader_host::ended(const connection_end& end) {
  const std::lock_guard hold(mutex_);
  door_ ? caller_ended(end) : joined_ended(end);
  changed_.notify_all();
}

void loader_host::caller_ended(const connection_end& end) {
  using how = connection_end::how;
  if (end.ending == how::unfit && serves_others(end.session))
    log::warn("host", "no worker of this host can work for one of its sessions: {}", end.why.message);
  else if (end.ending == how::unfit && !failed_)
    failed_ = end.why;
  if (end.ending != how::lost && end.ending != how::busy) return;
  if (end.session == 0 && ++unknown_ > unknown_calls_logged) return;
  trouble(0, end.why.message);
}

void loader_host::joined_ended(const connection_end& end) {
  using how = connection_end::how;
  join_attempts& attempts = target_of(end.session).attempts;
  if (end.placed) end.ending == how::lost ? attempts.lost(now()) : attempts.left();
  if (attempts.over()) return;
  const std::string where = text_of(target_of(end.session).address);
  switch (end.ending) {
    case how::left: return;
    case how::busy:
      attempts.busy(now());
      if (attempts.placed() == 0) trouble(end.session, end.why.message);
      return;
    case how::unfit: return give_up(end.session, end.why);
    case how::session_over:
      attempts.finish();
      if (serves_others(end.session)) log::info("host", "the session at {} is over; others continue", where);
      return;
    case how::lost: break;
  }
  if (end.placed || attempts.failed(now())) return trouble(end.session, end.why.message);
  give_up(end.session, {errc::io, fmt::format("the session at {} has not returned for {}: {}", where,
                                              duration_for_people(attempts.wait()), end.why.message), 0});
}

/// Once no session is left, the host ends with the first cause.
void loader_host::give_up(session_number session, failure why) {
  target_of(session).attempts.finish();
  for (const auto& one : connections_) {
    if (one->joins() == session) one->leave(true);
  }
  if (serves_others(session)) log::warn("host", "{}; other sessions continue", why.message);
  if (!failed_) failed_ = std::move(why);
}

}  // namespace penstock::hosts
