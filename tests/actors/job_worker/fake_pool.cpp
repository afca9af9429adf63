#include "tests/actors/job_worker/fake_pool.hpp"

#include "actors/protocol/config_bytes.hpp"
#include "actors/supervisor/worker_processes.hpp"

#include <boost/asio/post.hpp>
#include <catch2/catch_test_macros.hpp>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <csignal>
#include <thread>

namespace penstock::testing {
namespace {

using namespace std::chrono_literals;

constexpr auto patience = 20s;

}  // namespace

fake_pool::fake_pool(std::vector<std::string> command, std::uint64_t slot_bytes, std::uint64_t most)
    : session_side(slot_bytes), elsewhere_max(most) {
  process::child_callbacks calls;
  calls.exited = [this](const process::exit_report& report, const process::output_tail& tail) {
    output_ = tail.text();
    ended_.set_value(report);
  };
  std::promise<result<supervisor::linked_child>> started;
  boost::asio::post(io_->context(), [&] {
    supervisor::start_linked_child(*io_,
                                   {.who = "a worker",
                                    .program = command.front(),
                                    .arguments = {command.begin() + 1, command.end()},
                                    .environment = supervisor::worker_environment({}),
                                    .lifeline = lifeline_.read_end.get(),
                                    .arena = memory.fd(),
                                    .flight = flights.fd(),
                                    .parcels = true},
                                   std::move(calls), [&](result<supervisor::linked_child> child) {
                                     started.set_value(std::move(child));
                                   });
  });
  auto child = started.get_future().get();
  REQUIRE(child);
  process_ = std::move(child->process);
  link_ = std::move(child->link);
  parcels = std::move(child->parcels);
}

fake_pool::~fake_pool() {
  std::promise<void> gone;
  boost::asio::post(io_->context(), [&] {
    process_.reset();
    gone.set_value();
  });
  gone.get_future().wait();
}

void fake_pool::unexpected(const protocol::from_worker& message) {
  const auto* last = std::get_if<protocol::worker_gives_up>(&message);
  FAIL("message " << message.index() << (last != nullptr ? ": " + last->reason : ""));
  std::abort();  // FAIL throws
}

void fake_pool::say(const protocol::to_worker& message) {
  std::vector<char> bytes;
  REQUIRE(protocol::append_frame(bytes, message));
  say_bytes({bytes.data(), bytes.size()});
}

void fake_pool::say_bytes(std::string_view bytes) {
  REQUIRE(::send(link_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(bytes.size()));
}

protocol::from_worker fake_pool::hear() {
  const auto until = std::chrono::steady_clock::now() + patience;
  while (heard_.empty()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    pollfd news{link_.get(), POLLIN, 0};
    if (::poll(&news, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0))) <= 0)
      FAIL("it sends no message");
    std::array<char, 4096> piece{};
    const ssize_t bytes = ::recv(link_.get(), piece.data(), piece.size(), 0);
    if (bytes <= 0) FAIL("it closed the link");
    REQUIRE(reader_.feed({piece.data(), static_cast<std::size_t>(bytes)},
                         [&](protocol::from_worker&& m) { heard_.push_back(std::move(m)); }));
  }
  protocol::from_worker first = std::move(heard_.front());
  heard_.pop_front();
  return first;
}

void fake_pool::introduce() {
  CHECK(hear_a<protocol::hello>().version == protocol::version);
  say(protocol::open_dataset{protocol::version, {0, 1}, protocol::config_as_bytes({})});
  functions = hear_a<protocol::functions_described>().names;
  say(protocol::assign_slots{
      .slot_bytes = shape.slot_bytes, .slots = shape.slots, .partitions = 1, .elsewhere_max = elsewhere_max});
  hear_a<protocol::worker_ready>();
}

std::vector<read_row> fake_pool::run(const std::vector<job>& jobs) {
  const protocol::run_jobs order = lease(jobs);
  say(order);
  while (hear_a<protocol::jobs_done>().rows < order.rows) {
  }
  return read_all(order);
}

void fake_pool::wait_for(std::uint32_t slot, arena::row_state state) const {
  const auto until = std::chrono::steady_clock::now() + patience;
  while (table(slot).read(0)->state != state) {
    if (std::chrono::steady_clock::now() > until) FAIL("row 0 of slot " << slot << " gets no further");
    std::this_thread::yield();
  }
}

process::exit_report fake_pool::end_of_process() {
  auto end = ended_.get_future();
  REQUIRE(end.wait_for(patience) == std::future_status::ready);
  return end.get();
}

void fake_pool::signal(int number) {
  boost::asio::post(io_->context(), [this, number] { process_->signal(number); });
}

pid_t fake_pool::pid() const {
  return process_->pid();
}

}  // namespace penstock::testing
