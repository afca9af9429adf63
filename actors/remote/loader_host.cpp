#include "actors/remote/loader_host.hpp"

#include "actors/protocol/config_bytes.hpp"
#include "actors/remote/agreement.hpp"
#include "actors/remote/seat_security.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/text.hpp"
#include "runtime/group/this_process.hpp"

#include <unistd.h>

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
  return made;
}

loader_host::~loader_host() {
  for (const auto& one : seats_) one->leave(true);
  seats_.clear();
}

result<void> loader_host::run() {
  const seat_listener listener{[this](const std::string& config) { return prepare(config); },
                               [this](const std::string& session) { joined(session); },
                               [this](const std::string& why) { trouble(why); },
                               [this](std::optional<failure> failed) { ended(std::move(failed)); }};
  std::unique_lock hold(mutex_);
  for (std::uint32_t i = 0; i < settings_.workers; ++i)
    seats_.push_back(std::make_unique<host_seat>(facts_, listener));
  changed_.wait(hold, [this] { return ended_ == settings_.workers || failed_; });
  if (failed_) return tl::unexpected(*failed_);
  return {};
}

void loader_host::leave(bool at_once) {
  const std::lock_guard hold(mutex_);
  for (const auto& one : seats_) one->leave(at_once);
}

result<std::shared_ptr<const ready_dataset>> loader_host::prepare(const std::string& config) {
  const std::lock_guard hold(listing_);
  if (dataset_ && listed_ == config) return dataset_;
  auto settings = protocol::config_from_bytes(config);
  if (!settings) return tl::unexpected(std::move(settings.error()));
  auto here = config_on_host(std::move(*settings), settings_.data);
  if (!here) return tl::unexpected(std::move(here.error()));
  auto listed = prepare_dataset(*here, {}, here->image.decoder);
  if (!listed) return tl::unexpected(std::move(listed.error()));
  for (const std::string& notice : listed->notices) log::warn("dataset", "{}", notice);
  const hosts_config& rules = here->loader.hosts;
  auto made = std::make_shared<ready_dataset>(
      ready_dataset{protocol::config_as_bytes(*here), std::move(*listed), rules.lost_after, rules.drain, rules.wait});
  listed_ = config;
  dataset_ = std::move(made);
  return dataset_;
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
