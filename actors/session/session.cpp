#include "actors/host/worker_rules.hpp"
#include "actors/session/launcher_news.hpp"
#include "actors/session/session_body.hpp"
#include "runtime/base/worker_places.hpp"
#include "runtime/config/validate.hpp"
#include "runtime/device/decoder_choice.hpp"
#include "runtime/process/spawn.hpp"
#include "runtime/schedule/group_state.hpp"

namespace penstock {

Session::Session(config settings, session_options options)
    : body_(std::make_unique<body>(std::move(settings), options)) {}
Session::~Session() {
  // A forked child has no threads to join, and the workers belong to the parent: leak the body on purpose.
  if (body_ && body_->process().left()) static_cast<void>(body_.release());
}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&& other) noexcept {
  Session taken(std::move(other));
  std::swap(body_, taken.body_);  // `taken` destroys our old body
  return *this;
}

Session::body& Session::held() const {
  if (!body_) throw error({errc::usage, "this Session was moved to another object", 0});
  body_->process().require("Session");
  return *body_;
}
std::optional<Batch> Session::next() {
  return held().next();
}
bool Session::run_for(std::chrono::milliseconds at_most) {
  return held().run_for(at_most);
}
void Session::stop(std::optional<std::chrono::milliseconds> at_most, std::string_view by) noexcept {
  if (body_ && !body_->process().left()) body_->stop(at_most, by);
}
void Session::fail(std::string_view why, std::optional<std::chrono::milliseconds> at_most) noexcept {
  if (body_ && !body_->process().left()) body_->fail(why, at_most);
}
void Session::retire() noexcept {
  if (body_ && !body_->process().left()) body_->retire();
}
void Session::close() noexcept {
  if (body_ && !body_->process().left()) body_->close();
}
void Session::pause() {
  held().pause(true);
}
void Session::resume() {
  held().pause(false);
}
void Session::scale(std::uint32_t workers) {
  held().scale(workers);
}
void Session::scale_automatically() {
  held().scale_automatically();
}
void Session::restart(std::uint32_t worker) {
  held().restart(worker);
}
void Session::drain(std::uint32_t worker) {
  held().drain(worker);
}
bool Session::retry_quarantined(std::uint64_t sample) {
  return held().lift_quarantine(sample, false);
}
bool Session::release_quarantined(std::uint64_t sample) {
  return held().lift_quarantine(sample, true);
}
session_status Session::status() const {
  return held().status();
}
run_report Session::report() const {
  return held().report();
}
std::vector<std::byte> Session::state() const {
  return held().state();
}
std::vector<std::byte> group_state(std::span<const std::vector<std::byte>> of_ranks) {
  std::vector<schedule::stream_state> states;
  for (const std::vector<std::byte>& one : of_ranks)
    states.push_back(value_or_throw(schedule::parse_state(one)));
  return schedule::serialise(value_or_throw(schedule::group_state(states)));
}
Session::Epoch Session::epoch(std::uint64_t number) {
  static_cast<void>(held());
  return {*this, number};
}
std::optional<Batch> Session::Epoch::next() {
  return owner_->held().next_of(number_, iteration_);
}
Session::Epoch::iterator Session::Epoch::begin() {
  if (std::exchange(begun_, true))
    throw error({errc::usage, fmt::format("this range over epoch {} is already being iterated", number_), 0});
  return iterator(*this);
}
void Session::Epoch::iterator::past_the_end() {
  throw error({errc::usage, "this iterator is already at the end of its epoch", 0});
}

struct session::launcher_access {
  static Session::body& body_of(const Session& session) { return session.held(); }
};

std::optional<std::uint64_t> session::beats_of(const Session& session) {
  return launcher_access::body_of(session).beats();
}

void session::expect_lost_processes(const Session& session) {
  launcher_access::body_of(session).expect_lost_processes();
}

void session::processes_lost(const Session& session, const std::vector<lost_process_report>& lost) {
  launcher_access::body_of(session).processes_lost(lost);
}

Session::outline Session::dry_run(const config& given) {
  config settings = value_or_throw(config_file::accept(given, config_file::process_environment()));
  settings.image.decoder = value_or_throw(device::choose_decoder(settings)).by;
  outline o;
  o.workers = host::workers_of(settings);
  static_cast<void>(value_or_throw(hosts::read_hosts(settings.loader, o.workers > 0)));
  const auto prepared = value_or_throw(prepare(settings));
  if (auto program = process::find_program(settings.loader.command.front()); !program) {
    program.error().message = "[loader] command: " + program.error().message;
    value_or_throw(std::move(program));
  }
  if (!prepared) return o;
  const dataset_description& d = prepared->description;
  const auto order = value_or_throw(session::plan_of(settings, d, prepared->order));
  const auto layout = value_or_throw(lay_out(d.tensors, session::rows_max_of(order)));
  const auto shape = value_or_throw(session::geometry_of(settings, layout, places_of(settings.loader)));
  value_or_throw(
      arena::check_memory(session::memory_need_of(settings, shape, o.workers), arena::memory_limits()));
  o.samples = d.samples;
  o.rank = order.settings().rank;
  o.world_size = order.settings().world_size;
  o.batches_per_epoch = order.batches_per_epoch();
  o.expected_samples = order.expected_samples();
  o.padded_samples = order.shape().usual.padded;
  o.slot_bytes = shape.slot_bytes;
  o.slots_per_worker = shape.slots;
  o.arena_bytes = shape.partition_bytes() * o.workers;
  o.fingerprint = d.fingerprint;
  o.notices = prepared->notices;
  return o;
}

}  // namespace penstock
