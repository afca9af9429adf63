#include "actors/remote/loader_host.hpp"

#include "actors/protocol/config_bytes.hpp"
#include "actors/remote/agreement.hpp"
#include "actors/remote/host_security.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/remote_path.hpp"
#include "runtime/base/text.hpp"
#include "runtime/dataset/listing/names.hpp"
#include "runtime/group/this_process.hpp"
#include "runtime/process/cores.hpp"

#include <boost/asio/post.hpp>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <future>
#include <iterator>
#include <utility>

namespace penstock::hosts {
namespace {

constexpr std::ptrdiff_t unknown_calls_at_once = 64;
constexpr std::uint64_t unknown_calls_logged = 10;  // more could be a flood

/// With --data, also the files that a list names are below its folders.
result<void> check_lists(const config& here, const string_map& own) {
  std::vector<std::string> paths{here.dataset.path};
  for (const mixed_dataset_config& one : here.datasets) paths.push_back(one.dataset.path);
  for (const std::string& path : paths) {
    if (own.empty() || !ends_with_any_case(path, ".txt")) continue;
    if (is_url(path)) return refuse(errc::config, "the list '{}' is in object storage, where --data cannot be checked", path);
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};  // that it cannot be read is reported by the listing
    if (auto ok = check_list(path, text, own); !ok) return ok;
  }
  return {};
}

}  // namespace

loader_host::loader_host(const host_settings& settings) : settings_(settings) {}

result<std::unique_ptr<loader_host>> loader_host::open(const host_settings& settings) {
  const bool joins = settings.listen.empty();
  auto address = parse_address(joins ? settings.session : settings.listen);
  if (!address) return tl::unexpected(std::move(address.error()));
  auto tls = tls_of_hosts(connection_side::host, joins ? connected_by::host : connected_by::session, *address,
                          {settings.secret_file, settings.insecure, "give --secret-file, or set [loader.hosts] secret_file,"});
  if (!tls) return tl::unexpected(std::move(tls.error()));
  auto lifeline = process::lifeline::create();
  if (!lifeline) return tl::unexpected(std::move(lifeline.error()));
  auto made = std::unique_ptr<loader_host>(new loader_host(settings));
  made->lifeline_ = std::move(*lifeline);
  made->io_ = std::make_unique<process::io_thread>();
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
  if (door_) door_->close();
  for (const auto& one : connections_) one->leave(true);
  connections_.clear();
  dataset_.reset();
  // Twice: what is destroyed on the io thread may leave the rest of its end to that thread.
  for (int i = 0; i < 2; ++i) {
    std::promise<void> done;
    boost::asio::post(io_->context(), [&] { done.set_value(); });
    done.get_future().wait();
  }
}

connection_listener loader_host::listener() {
  return {[this](const session_offer& offer) { return prepare(offer); },
          [this](const session_calls& call) { return admit(call); },
          [this] { released(); },
          [this](const std::string& session) { joined(session); },
          [this] { sent_away(); },
          [this](const std::string& why, bool unknown) { trouble(why, unknown); },
          [this](std::optional<failure> failed) { ended(std::move(failed)); }};
}

result<void> loader_host::run() {
  std::unique_lock hold(mutex_);
  if (door_) {
    log::info("host", "waiting for a session at {} with {}{}", door_->where(), counted(settings_.workers, "worker"),
              facts_.tls ? "" : ", without a secret: whoever reaches that port may use them");
    door_->open([this](accepted_call call) { accept(std::move(call)); });
    while (!failed_ && !(leaves_ && connections_.empty())) {
      changed_.wait(hold, [this] {
        return failed_ || (leaves_ && connections_.empty()) || std::ranges::any_of(connections_, [](const auto& one) { return one->over(); });
      });
      remove_ended(hold);
    }
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
}

/// On a connection's thread. One session at a time.
std::string loader_host::admit(const session_calls& call) {
  const std::lock_guard hold(mutex_);
  if (leaves_) return fmt::format("{} is leaving", facts_.name);
  if (taken_ == 0) serves_ = call;
  if (serves_.process != call.process) return fmt::format("{} works for session {}", facts_.name, printable(serves_.session));
  if (taken_ >= settings_.workers) return fmt::format("all of its {} have work", counted(settings_.workers, "worker"));
  ++taken_;
  return {};
}

void loader_host::released() {
  {
    const std::lock_guard hold(mutex_);
    if (--taken_ > 0) return;
    if (!leaves_) log::info("host", "session {} is gone; waiting for the next one", printable(serves_.session));
  }
  // The code of a pool ends with it; the listing of a dataset may serve the next session, which may have come meanwhile.
  const std::scoped_lock both(listing_, mutex_);
  if (taken_ > 0 || !dataset_ || !dataset_->program) return;
  dataset_.reset();
  listed_ = {};
}

void loader_host::remove_ended(std::unique_lock<std::mutex>& hold) {
  std::vector<std::unique_ptr<host_connection>> over;
  for (auto& one : connections_) {
    if (one->over()) over.push_back(std::move(one));
  }
  std::erase(connections_, nullptr);
  hold.unlock();
  over.clear();  // waits for their threads, which may be calling ended()
  hold.lock();
}

// ---- calls of connections -----------------------------------------------------------------------------------------

result<std::shared_ptr<const ready_dataset>> loader_host::prepare(const session_offer& offer) {
  const std::lock_guard hold(listing_);
  if (dataset_ && listed_ == offer) return dataset_;
  auto settings = protocol::config_from_bytes(offer.config);
  if (!settings) return tl::unexpected(std::move(settings.error()));
  if (!offer.program.empty()) {
    auto program = program_for(offer, settings->loader.start_method == start_method_rule::from_template);
    if (!program) return tl::unexpected(std::move(program.error()));
    const hosts_config& rules = settings->loader.hosts;
    listed_ = offer;
    dataset_ = std::make_shared<ready_dataset>(
        ready_dataset{offer.config, {}, rules.lost_after, rules.drain, rules.wait, compress_rule::none, std::move(*program)});
    return dataset_;
  }
  auto here = config_on_host(std::move(*settings), settings_.data);
  if (!here) return tl::unexpected(std::move(here.error()));
  if (auto ok = check_lists(*here, settings_.data); !ok) return tl::unexpected(std::move(ok.error()));
  if (auto packs = packer::open(here->loader.hosts.compress); !packs) return tl::unexpected(std::move(packs.error()));
  auto listed = prepare_dataset(*here, {}, here->image.decoder);
  if (!listed) return tl::unexpected(std::move(listed.error()));
  for (const std::string& notice : listed->notices) log::warn("dataset", "{}", notice);
  const hosts_config& rules = here->loader.hosts;
  auto made = std::make_shared<ready_dataset>(
      ready_dataset{protocol::config_as_bytes(*here), std::move(*listed), rules.lost_after, rules.drain, rules.wait, rules.compress, {}});
  listed_ = offer;
  dataset_ = std::move(made);
  return dataset_;
}

/// Refuses (errc::config) code that this host cannot run, or must not (rule H7).
result<std::shared_ptr<host_program>> loader_host::program_for(const session_offer& offer, bool forks) {
  if (!offer.encrypted)
    return refuse(errc::config, "the session sends {} code over a connection without a secret, which a host does not run", offer.program);
  if (!settings_.data.empty())
    return refuse(errc::config, "the session sends {} code, which could read anything, but --data allows some folders only", offer.program);
  if (settings_.program.kind != offer.program)
    return refuse(errc::config, "the session's workers are {} programs, but this host has none: start it as `python -m penstock host`",
                  offer.program);
  return host_program::make(*io_, settings_.program, offer.code, offer.marks_bytes, forks);
}

void loader_host::joined(const std::string& session) {
  const std::lock_guard hold(mutex_);
  last_trouble_.clear();
  if (door_) {
    if (taken_ == 1) log::info("host", "working for session {}", printable(session));
  } else if (joined_++ % settings_.workers == 0) {
    log::info("host", "joined session {} at {} as {} with {}", printable(session), text_of(facts_.address), facts_.name,
              counted(settings_.workers, "worker"));
  }
}

void loader_host::sent_away() {
  {
    const std::lock_guard hold(mutex_);
    if (leaves_) return;  // each connection hears of it
    log::info("host", "the session asks this host to leave: workers finish their batches");
  }
  leave(false);
}

void loader_host::trouble(const std::string& why, bool unknown) {
  const std::lock_guard hold(mutex_);
  if (unknown && ++unknown_ > unknown_calls_logged) return;
  if (std::exchange(last_trouble_, why) != why) log::warn("host", "{}{}", why, door_ ? "" : "; trying again");
}

void loader_host::ended(std::optional<failure> failed) {
  const std::lock_guard hold(mutex_);
  ++ended_;
  if (failed && !failed_) failed_ = std::move(failed);
  changed_.notify_all();
}

}  // namespace penstock::hosts
