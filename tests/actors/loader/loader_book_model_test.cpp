// Model test of the loader's book in a small world: the session sends its messages in any order, urgent leases arrive at any time,
// user code fails or loads CUDA, the session's memory cannot be mapped, and the link closes. The world carries out the steps and
// notes whose fault each failure is. A failing script is shrunk and printed.
#include "actors/loader/loader_book.hpp"
#include "runtime/base/exit_codes.hpp"
#include "tests/runtime/schedule/random_scripts.hpp"

#include <catch2/catch_test_macros.hpp>

#include <deque>
#include <set>

using namespace penstock;
using namespace penstock::loader;
using testing::require;

namespace {

// clang-format off
enum class act : std::uint8_t { open, assign, lease, urgent, urgent_while_running, names, wake, stop, close_link, break_protocol,
                                break_dataset, break_session, load_cuda, count };
constexpr const char* act_names[] = {"open", "assign", "lease", "urgent", "urgent_while_running", "names", "wake", "stop", "close_link",
                                     "break_protocol", "break_dataset", "break_session", "load_cuda"};
// clang-format on
using script = testing::script_of<act>;

/// Bugs that the world can have when it carries out the steps.
enum class bug : std::uint8_t { none, goes_on_after_the_end, hides_a_failure, hides_cuda, never_looks_for_urgent, loses_a_lease, forgets_the_description };

struct world_settings {
  bug planted = bug::none;
};

std::uint64_t ready_in_all = 0;
std::uint64_t run_in_all = 0;
std::uint64_t overtaken_in_all = 0;
std::set<int> exit_codes_in_all;

class world {
 public:
  using next_step = loader_book::next_step;

  explicit world(const world_settings& settings) : settings_(settings) {}

  std::size_t run(const script& steps) {
    for (const auto& s : steps) {
      perform(s);
      check_at_rest();
    }
    return steps.size();
  }

  next_step operator()(const open_and_describe&) {
    require(!opened_, "the dataset is opened twice");
    opened_ = true;
    if (session_fails()) return book_.session_failed({errc::protocol, "the config is cut off", 0});
    if (dataset_fails()) return book_.dataset_failed({errc::dataset, "no such folder", 0});
    described_ = true;
    if (settings_.planted == bug::forgets_the_description) return std::nullopt;
    return book_.described({{.name = "x", .type = dtype::uint8, .shape = {100}}});
  }
  next_step operator()(const map_and_set_up& step) {
    require(described_ && !set_up_, "the dataset is set up twice, or before it is described");
    require(step.layout.bytes <= step.order.slot_bytes, "a batch does not fit its slot");
    set_up_ = true;
    if (session_fails()) return book_.session_failed({errc::protocol, "the arena is gone", 0});
    if (dataset_fails()) return book_.dataset_failed({errc::dataset, "setup() has failed", 0});
    const bool cuda = cuda_appears();
    if (cuda) must_end_ = dataset_fault_ = true;
    return book_.set_up(cuda && settings_.planted != bug::hides_cuda, 1);
  }
  next_step operator()(const report_ready&) {
    require(set_up_ && !ready_, "ready twice, or before it is set up");
    ready_ = true;
    ++ready_in_all;
    return std::nullopt;
  }
  next_step operator()(const look_for_urgent&) {
    wake_is_due_ = false;
    if (urgent_.empty() || settings_.planted == bug::never_looks_for_urgent) return book_.urgent(std::nullopt);
    if (!ready_) must_end_ = session_fault_ = true;
    if (!usual_.empty()) ++overtaken_in_all;
    const std::uint32_t slot = urgent_.front();
    urgent_.pop_front();
    running_urgent_ = true;
    return book_.urgent(protocol::load_batch{slot, 1, 0, {}, true});
  }
  next_step operator()(const run_lease& step) {
    require(ready_ && !must_end_, "a lease runs in a worker that is not ready");
    require(step.lease.urgent || urgent_.empty(), "an urgent lease has to wait");
    require(step.lease.urgent == std::exchange(running_urgent_, false), "a lease runs that was not taken");
    if (!step.lease.urgent) {
      require(!usual_.empty() && usual_.front() == step.lease.slot, "leases run twice or in another order");
      if (settings_.planted == bug::loses_a_lease) return book_.ran(false);
      usual_.pop_front();
    }
    ++run_in_all;
    if (std::exchange(arrives_while_running_, false)) urgent_.push_back(number_++);
    if (stopping_) return book_.stopped();
    if (session_fails()) return book_.session_failed({errc::protocol, "there is no such slot", 0});
    const bool cuda = cuda_appears();
    if (cuda) must_end_ = cuda_while_loading_ = true;
    return book_.ran(cuda && settings_.planted != bug::hides_cuda);
  }
  next_step operator()(const tell_names& step) {
    require(ready_ && step.samples.size() == 1, "names are told before the dataset is set up, or of other samples");
    ++told_;
    return std::nullopt;
  }
  next_step operator()(const end_process& step) {
    require(!ended_, "the process ends twice");
    ended_ = settings_.planted != bug::goes_on_after_the_end;
    exit_codes_in_all.insert(step.exit_code);
    require(step.why.has_value() == exit_codes::is_permanent(step.exit_code), "the session learns a reason, or does not, against the exit code");
    switch (step.exit_code) {
      case exit_codes::finished: require(stopping_, "it exits as told, but nobody told it to"); break;
      case exit_codes::parent_lost: require(closed_, "it exits because the session is gone, but it is not"); break;
      case exit_codes::temporary: require(cuda_while_loading_, "it is replaced without need"); break;
      case exit_codes::configuration: require(dataset_fault_, "the dataset is blamed without a fault"); break;
      case exit_codes::protocol: require(session_fault_, "the session is blamed without a fault"); break;
      default: require(false, "an exit code that the session does not know");
    }
    return std::nullopt;
  }

 private:
  void perform(const testing::step<act>& s) {
    switch (s.what) {
      case act::open: {
        protocol::open_dataset order{protocol::version, {1, 1}, {}, false};
        if (s.pick % 20 == 0) ++order.version;
        else order.pool = s.pick % 20 == 1;
        (order.pool ? dataset_fault_ : session_fault_) |= s.pick % 20 < 2 || opened_;
        must_end_ |= s.pick % 20 < 2 || opened_;
        return carry_out(book_.open(order));
      }
      case act::assign: {
        const bool fits = s.pick % 20 != 0;
        session_fault_ |= !fits || !described_ || set_up_;
        must_end_ |= !fits || !described_ || set_up_;
        return carry_out(book_.assign({fits ? 4096U : 100U, 2, 2, 1, 2, 0}));
      }
      case act::lease:
        session_fault_ |= !ready_;
        must_end_ |= !ready_;
        usual_.push_back(number_);
        return carry_out(book_.lease({number_++, 1, 0, {}, false}));
      case act::urgent:  // its wake_up is behind other messages in the mailbox, or is handled at once
        urgent_.push_back(number_++);
        wake_is_due_ = s.pick % 2 == 0;
        return wake_is_due_ ? void() : carry_out(book_.woken(stopping_));
      case act::urgent_while_running: arrives_while_running_ = true; return;
      case act::names: {
        session_fault_ |= !ready_;
        must_end_ |= !ready_;
        const std::uint64_t before = told_;
        carry_out(book_.name({{7}}));
        return require(must_end_ || told_ == before + 1, "names are told twice or never");
      }
      case act::wake: return carry_out(book_.woken(stopping_));
      case act::stop:
        stopping_ = must_end_ = true;
        return carry_out(book_.woken(true));
      case act::close_link:
        closed_ = stopping_ = must_end_ = true;
        return carry_out(book_.link_lost({}));
      case act::break_protocol:
        session_fault_ = must_end_ = true;
        return carry_out(book_.link_lost("garbage"));
      case act::break_dataset: dataset_breaks_ = true; return;
      case act::break_session: session_breaks_ = true; return;
      case act::load_cuda: loads_cuda_ = true; return;
      case act::count: return;
    }
  }

  void carry_out(next_step next) {
    while (next) {
      require(!ended_, "a process that has ended goes on");
      next = std::visit(*this, *next);
    }
  }

  /// Invariants, checked after each message.
  void check_at_rest() const {
    require(ended_ == must_end_, "the process lives on after a failure or an order to stop, or ends without one");
    if (ended_) return;
    require(usual_.empty() && (urgent_.empty() || wake_is_due_ || !ready_), "a lease is left although the worker is idle");
  }

  [[nodiscard]] bool session_fails() {
    if (!std::exchange(session_breaks_, false)) return false;
    return session_fault_ = must_end_ = true;
  }
  [[nodiscard]] bool dataset_fails() {
    if (!std::exchange(dataset_breaks_, false)) return false;
    dataset_fault_ = must_end_ = true;
    return settings_.planted != bug::hides_a_failure;
  }
  [[nodiscard]] bool cuda_appears() { return std::exchange(loads_cuda_, false); }

  const world_settings settings_;
  loader_book book_;
  bool opened_ = false;
  bool described_ = false;
  bool set_up_ = false;
  bool ready_ = false;
  bool ended_ = false;
  bool stopping_ = false;
  bool closed_ = false;
  // Faults that happen at the next opportunity.
  bool session_breaks_ = false;
  bool dataset_breaks_ = false;
  bool loads_cuda_ = false;
  bool arrives_while_running_ = false;
  // Faults that have happened.
  bool session_fault_ = false;
  bool dataset_fault_ = false;
  bool cuda_while_loading_ = false;
  bool must_end_ = false;
  std::deque<std::uint32_t> usual_;
  std::deque<std::uint32_t> urgent_;
  bool running_urgent_ = false;
  bool wake_is_due_ = false;
  std::uint32_t number_ = 0;
  std::uint64_t told_ = 0;
};

/// Most scripts begin as a session does; otherwise few worlds would become ready.
script random_script(testing::random_choice& choose) {
  script steps(5 + choose.below(30));
  for (auto& s : steps) {
    const std::uint32_t what = choose.below(100);
    s.what = what < 60   ? act::lease
             : what < 70 ? act::urgent_while_running
             : what < 85 ? act::urgent
             : what < 93 ? act::names
                         : static_cast<act>(choose.below(static_cast<std::uint32_t>(act::count)));
    s.pick = choose.below(1000);
  }
  if (choose.below(10) > 0) steps[0].what = act::open;
  if (choose.below(10) > 0) steps[1].what = act::assign;
  if (choose.below(5) == 0) steps.insert(steps.begin() + choose.below(2), {choose.below(2) == 0 ? act::break_dataset : act::load_cuda, 0});
  return steps;
}

const testing::model<act, world_settings> the_model{
    .name = "loader_book",
    .act_names = act_names,
    .random_script = random_script,
    .run = [](const world_settings& s, const script& steps) { return world(s).run(steps); }};

}  // namespace

TEST_CASE("whatever a session sends and whatever fails, a loader runs each lease once, urgent ones first, or exits with the code for its cause") {
  testing::explore(the_model);
  CHECK(testing::is_tried(ready_in_all, 10'000));
  CHECK(testing::is_tried(run_in_all, 100'000));
  CHECK(testing::is_tried(overtaken_in_all, 10'000));
  CHECK(exit_codes_in_all == std::set<int>{exit_codes::finished, exit_codes::temporary, exit_codes::configuration, exit_codes::protocol,
                                           exit_codes::parent_lost});
}

TEST_CASE("the model of a loader finds an actor that ignores the book's decisions") {
  for (const bug planted : {bug::goes_on_after_the_end, bug::hides_a_failure, bug::hides_cuda, bug::never_looks_for_urgent,
                            bug::loses_a_lease, bug::forgets_the_description}) {
    CAPTURE(static_cast<int>(planted));
    CHECK(testing::finds_a_mistake(the_model, world_settings{planted}));
  }
}
