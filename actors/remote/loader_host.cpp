#include "actors/remote/loader_host.hpp"

#include "actors/protocol/config_bytes.hpp"
#include "actors/remote/agreement.hpp"
#include "actors/remote/seat_security.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/text.hpp"
#include "runtime/group/this_process.hpp"

#include <boost/asio/post.hpp>
#include <unistd.h>

#include <future>
#include <utility>

namespace penstock::hosts {

loader_host::loader_host(const host_settings& settings) : settings_(settings) {}

result<std::unique_ptr<loader_host>> loader_host::open(const host_settings& settings) {
  auto address = parse_address(settings.session);
  if (!address) return tl::unexpected(std::move(address.error()));
  auto tls = tls_of_seats(group::tls_role::client, *address,
                          {settings.secret_file, settings.insecure, "give --secret-file, or set [loader.hosts] secret_file,"});
  if (!tls) return tl::unexpected(std::move(tls.error()));
  auto lifeline = process::lifeline::create();
  if (!lifeline) return tl::unexpected(std::move(lifeline.error()));
  auto made = std::unique_ptr<loader_host>(new loader_host(settings));
  made->lifeline_ = std::move(*lifeline);
  made->io_ = std::make_unique<process::io_thread>();
  host_facts& facts = made->facts_;
  facts.io = made->io_.get();
  facts.session = std::move(*address);
  facts.tls = std::move(*tls);
  facts.lifeline = made->lifeline_.read_end.get();
  facts.version = settings.version;
  facts.name = settings.name.empty() ? group::host_name() : settings.name;
  facts.process = group::number_of_this_process();
  facts.program_facts = settings.program.facts;
  return made;
}

loader_host::~loader_host() {
  for (const auto& one : seats_) one->leave(true);
  seats_.clear();
  dataset_.reset();
  // Twice: what is destroyed on the io thread may leave the rest of its end to that thread.
  for (int i = 0; i < 2; ++i) {
    std::promise<void> done;
    boost::asio::post(io_->context(), [&] { done.set_value(); });
    done.get_future().wait();
  }
}

result<void> loader_host::run() {
  const seat_listener listener{[this](const session_offer& offer) { return prepare(offer); },
                               [this](const std::string& session) { joined(session); },
                               [this](const std::string& why) { trouble(why); },
                               [this](std::optional<failure> failed) { ended(std::move(failed)); }};
  std::unique_lock hold(mutex_);
  for (std::uint32_t i = 0; i < settings_.workers; ++i)
    seats_.push_back(std::make_unique<host_seat>(facts_, i, listener));
  changed_.wait(hold, [this] { return ended_ == settings_.workers || failed_; });
  if (failed_) return tl::unexpected(*failed_);
  return {};
}

void loader_host::leave(bool at_once) {
  const std::lock_guard hold(mutex_);
  for (const auto& one : seats_) one->leave(at_once);
}

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
        ready_dataset{offer.config, {}, rules.lost_after, rules.drain, rules.wait, std::move(*program)});
    return dataset_;
  }
  auto here = config_on_host(std::move(*settings), settings_.data);
  if (!here) return tl::unexpected(std::move(here.error()));
  auto listed = prepare_dataset(*here, {}, here->image.decoder);
  if (!listed) return tl::unexpected(std::move(listed.error()));
  for (const std::string& notice : listed->notices) log::warn("dataset", "{}", notice);
  const hosts_config& rules = here->loader.hosts;
  auto made = std::make_shared<ready_dataset>(
      ready_dataset{protocol::config_as_bytes(*here), std::move(*listed), rules.lost_after, rules.drain, rules.wait, {}});
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
  if (joined_++ % settings_.workers == 0)
    log::info("host", "joined session {} at {} as {} with {}", printable(session), text_of(facts_.session), facts_.name,
              counted(settings_.workers, "worker"));
}

void loader_host::trouble(const std::string& why) {
  const std::lock_guard hold(mutex_);
  if (std::exchange(last_trouble_, why) != why) log::warn("host", "{}; trying again", why);
}

void loader_host::ended(std::optional<failure> failed) {
  const std::lock_guard hold(mutex_);
  ++ended_;
  if (failed && !failed_) failed_ = std::move(failed);
  changed_.notify_all();
}

}  // namespace penstock::hosts
