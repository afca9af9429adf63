// Model test of the GPU owner's supervision in a simulated world: a scheduler that orders uploads and repeats
// lost ones; a process that works, violates the protocol, crashes, hangs, survives SIGKILL or cannot be
// started; an operator; and a session that ends at any time. Invariants are checked after every step against
// the world's own records. A failing script is shrunk and printed.
#include "runtime/supervision/owner_supervision.hpp"
#include "tests/runtime/schedule/random_scripts.hpp"

#include <catch2/catch_test_macros.hpp>

#include <csignal>
#include <deque>
#include <map>
#include <set>

using namespace penstock;
using namespace penstock::supervision;
using namespace std::chrono_literals;
using process::exit_report;
using testing::violation;

namespace {

// clang-format off
enum class act : std::uint8_t { pass, sleep, get_ready, order, copy, deliver, take, crash, outside_kill, exit, lie,
                                close_link, freeze, fail_spawn, stall_spawn, operate, close, hurry, late_news, count };
constexpr const char* act_names[] = {"pass", "sleep", "get_ready", "order", "copy", "deliver", "take", "crash",
                                     "outside_kill", "exit", "lie", "close_link", "freeze", "fail_spawn", "stall_spawn", "operate",
                                     "close", "hurry", "late_news"};
// clang-format on
using script = testing::script_of<act>;

struct world_settings {
  poison_rule on_poison = poison_rule::skip;
  std::set<stream_position> killers;  // batches that kill the sink
  bool forgets_losses = false;        // an injected bug: lost uploads are not ordered again
};

constexpr stream_position batches = 12;

class world {
 public:
  explicit world(const world_settings& settings) : settings_(settings), owner_(rules(settings), now_) {
    owner_.open(now_);
    settle();
  }

  void run(const script& steps) {
    for (const auto& s : steps) {
      perform(s);
      settle();
    }
    finish();
  }

 private:
  struct process_here {
    std::uint32_t incarnation = 0;
    bool introduced = false;
    bool opened = false;
    bool frozen = false;       // does not react to messages and sends no heartbeats
    bool told_to_stop = false;
    bool killed = false;
    bool spawned = false;      // the spawn has been reported
    bool stalled = false;      // the spawn does not return unless it is killed
    bool stubborn = false;     // the spawn does not return even when it is killed
    std::deque<upload_order> has;
    std::set<std::uint64_t> copied;
    std::optional<upload_order> in_hand;
  };

  static owner_settings rules(const world_settings& settings) {
    owner_settings s;
    s.restart.intensity_max = 3;
    s.restart.intensity_within = 10min;
    s.clocks = {20s, 2s, 5s};
    s.on_poison = settings.on_poison;
    return s;
  }

  static void require(bool holds, const char* what) {
    if (!holds) throw violation{what};
  }

  // ---- steps of the world ---------------------------------------------------------------------------------

  void perform(const testing::step<act>& s) {
    switch (s.what) {
      case act::pass: return pass(10ms * (s.pick % 50));
      case act::sleep: now_ += 1s * (2 + s.pick % 200); return;
      case act::get_ready: return get_ready();
      case act::order: return order();
      case act::copy: return copy();
      case act::deliver: return deliver();
      case act::take: return take();
      case act::crash: return die(signalled(SIGSEGV));
      case act::outside_kill: return die(signalled(SIGKILL));
      case act::exit: return die(exited(static_cast<int>(s.pick % 3)));
      case act::lie:
        if (lives()) static_cast<void>(owner_.copied(here_->incarnation, now_, 1'000'000));
        return;
      case act::close_link:
        if (lives()) owner_.link_closed(here_->incarnation, now_, s.pick % 2 == 0 ? "" : "garbage");
        return;
      case act::freeze:
        if (lives()) here_->frozen = true;
        return;
      case act::fail_spawn:
        if (here_ && !here_->spawned) refuse_spawn();
        return;
      case act::stall_spawn:
        if (here_ && !here_->spawned) here_->stalled = true, here_->stubborn = s.pick % 4 == 0;
        return;
      case act::operate: return owner_.restart(now_);
      case act::close: return close(8s);
      case act::hurry: return close(0s);
      case act::late_news:
        owner_.opened(0, now_);
        static_cast<void>(owner_.delivered(0, now_, 1));
        owner_.exited(0, now_, {signalled(SIGKILL), {}, "", false});
        return;
      case act::count: return;
    }
  }

  [[nodiscard]] bool lives() const { return here_ && here_->spawned; }

  void pass(nanoseconds time) {
    now_ += time;
    owner_sign sign;
    if (lives() && !here_->frozen) ++beats_;
    sign.heartbeats = beats_;
    if (lives() && here_->in_hand) sign.in_hand = mark(*here_->in_hand);
    owner_.look(now_, sign);
  }

  static std::uint32_t mark(const upload_order& u) { return static_cast<std::uint32_t>(u.upload & generation_mask); }

  void refuse_spawn() {
    const std::uint32_t incarnation = here_->incarnation;
    here_.reset();
    owner_.start_failed(incarnation, now_, {errc::system, "no descriptors", 24});
  }

  void get_ready() {
    if (!here_ || here_->stalled) return;
    if (!here_->spawned) {
      here_->spawned = true;
      owner_.started(here_->incarnation, 100 + static_cast<pid_t>(here_->incarnation));
    }
    if (here_->frozen) return;
    if (!here_->introduced && !greeted_) {
      greeted_ = true;
      owner_.greeted(here_->incarnation, now_, "");
      return;
    }
    if (here_->introduced && !std::exchange(here_->opened, true)) owner_.opened(here_->incarnation, now_);
  }

  void order() {
    if (next_ == batches) return;
    order_batch(next_++);
  }
  void order_batch(stream_position position) {
    ordered_.insert(position);
    owner_.order({++last_upload_, era_, 0, position, 0, position, 0, 0, {position}});
  }

  void copy() {
    if (!lives() || here_->frozen || !here_->opened) return;
    for (const upload_order& u : here_->has) {
      if (here_->copied.contains(u.upload)) continue;
      here_->copied.insert(u.upload);
      static_cast<void>(owner_.copied(here_->incarnation, now_, u.upload));
      return;
    }
  }

  void take() {
    if (!lives() || here_->frozen || here_->in_hand || here_->has.empty()) return;
    if (here_->copied.contains(here_->has.front().upload)) here_->in_hand = here_->has.front();
    if (here_->in_hand && settings_.killers.contains(here_->in_hand->position)) die(signalled(SIGSEGV));
  }

  void deliver() {
    if (!lives() || here_->frozen || !here_->in_hand) return;
    const upload_order done = *std::exchange(here_->in_hand, std::nullopt);
    here_->has.pop_front();
    here_->copied.erase(done.upload);
    // False: the owner had already violated the protocol.
    if (!owner_.delivered(here_->incarnation, now_, done.upload)) return;
    require(ordered_.erase(done.position) == 1, "a batch that was not owed was delivered");
    require(delivered_.insert(done.position).second, "a batch was delivered twice");
  }

  void die(const exit_report& how) {
    if (!lives()) return;
    owner_end end{how, std::nullopt, "", false};
    if (here_->in_hand) {
      end.in_hand = mark(*here_->in_hand);
      ++crashed_in_hand_[here_->in_hand->position];
    }
    const std::uint32_t incarnation = here_->incarnation;
    here_.reset();
    greeted_ = false;
    owner_.exited(incarnation, now_, end);
  }

  void close(nanoseconds patience) {
    const bool whole = ordered_.empty() && next_ == batches;
    closing_ = true;
    owner_.close(now_, whole, patience);
  }

  static exit_report signalled(int number) { return {1, exit_report::how::signalled, number, {}}; }
  static exit_report exited(int code) { return {1, exit_report::how::exited, code, {}}; }

  // ---- the owner's supervision commands -------------------------------------------------------------------

  void settle() {
    for (owner_command& c : owner_.advance(now_)) std::visit([this](auto& one) { carry_out(one); }, c);
    require((owner_.stage() == owner_stage::failed) <= failed_, "it failed but did not report that");
    require((owner_.stage() == owner_stage::stopped) <= closed_, "it closed but did not report that");
  }

  void carry_out(start_owner_process& order) {
    require(!here_, "a second process was started");
    require(!failed_ && !closed_, "a process was started after the end");
    require(order.incarnation == ++incarnations_, "an incarnation was skipped or used twice");
    here_.emplace();
    here_->incarnation = order.incarnation;
    greeted_ = false;
  }
  void carry_out(introduce_owner&) {
    require(lives() && !here_->introduced, "introduced twice, or without a process");
    here_->introduced = true;
  }
  void carry_out(send_uploads& order) {
    require(lives() && here_->introduced, "uploads for a process that cannot receive them");
    for (upload_order& u : order.uploads) {
      require(u.upload > last_sent_, "an upload was sent twice or out of order");
      last_sent_ = u.upload;
      here_->has.push_back(std::move(u));
    }
  }
  void carry_out(stop_owner_process&) {
    require(lives() && !std::exchange(here_->told_to_stop, true), "asked to stop twice, or without a process");
    require(closing_, "asked to stop before the session ends");
  }
  void carry_out(send_signal& signal) {
    require(here_.has_value(), "a signal without a process");
    require(!here_->killed, "a signal after SIGKILL");
    here_->killed = signal.number == SIGKILL;
  }
  void carry_out(uploads_lost& lost) {
    require(lost.era == era_ + 1, "an era was skipped");
    era_ = lost.era;
    if (lost.left_out) {
      require(crashed_in_hand_[lost.left_out->position] >= 2, "a batch that killed fewer than two owners was skipped");
      ordered_.erase(lost.left_out->position);
      delivered_.insert(lost.left_out->position);
    }
    if (settings_.forgets_losses) return;
    for (const stream_position p : std::set(ordered_)) order_batch(p);
  }
  void carry_out(owner_failed&) { require(!std::exchange(failed_, true), "it failed twice"); }
  void carry_out(owner_closed&) { require(!std::exchange(closed_, true), "it closed twice"); }
  template <class Other>
  void carry_out(Other&) {}

  // ---- the end --------------------------------------------------------------------------------------------

  /// No more faults: all batches are delivered and the owner exits, or the run has failed with a reason.
  void finish() {
    for (int i = 0; i < 20'000 && !failed_ && !closed_; ++i) {
      pass(100ms);
      settle();
      if (here_ && here_->killed && i % 3 == 0) die(signalled(SIGKILL));
      if (here_ && here_->killed && here_->stalled && !here_->stubborn) refuse_spawn();
      if (here_ && here_->told_to_stop && !here_->frozen) die(exited(0));
      get_ready();
      settle();
      order();
      settle();
      copy();
      take();
      deliver();
      settle();
      if (ordered_.empty() && next_ == batches && !closing_) close(8s);
      settle();
    }
    require(failed_ || closed_, "it neither ended nor failed");
    const bool whole = ordered_.empty() && next_ == batches;
    if (!failed_ && whole) require(delivered_.size() == batches, "a batch was lost");
  }

  const world_settings settings_;
  steady_time now_ = steady_time(1h);
  owner_supervision owner_;
  std::optional<process_here> here_;
  bool greeted_ = false;
  bool closing_ = false;
  bool failed_ = false;
  bool closed_ = false;
  std::uint32_t incarnations_ = 0;
  std::uint64_t beats_ = 0;
  std::uint64_t era_ = 0;
  std::uint64_t last_upload_ = 0;
  std::uint64_t last_sent_ = 0;
  stream_position next_ = 0;
  std::map<stream_position, int> crashed_in_hand_;
  std::set<stream_position> ordered_;    // ordered, but not delivered yet
  std::set<stream_position> delivered_;  // delivered or skipped
};

world_settings random_settings(testing::random_choice& choose) {
  world_settings settings;
  if (choose.below(4) == 0) settings.on_poison = poison_rule::fail;
  if (choose.below(2) == 0) settings.killers.insert(choose.below(batches));
  return settings;
}

script random_script(testing::random_choice& choose) {
  script steps(1 + choose.below(120));
  for (auto& s : steps) {
    // Mostly work, and sometimes faults.
    static constexpr act work[] = {act::pass, act::get_ready, act::order, act::copy, act::take, act::deliver};
    s.what = choose.below(4) != 0 ? work[choose.below(std::size(work))]
                                  : static_cast<act>(choose.below(static_cast<std::uint32_t>(act::count)));
    if ((s.what == act::close || s.what == act::hurry) && choose.below(4) != 0) s.what = act::pass;
    s.pick = choose.below(1U << 20U);
  }
  return steps;
}

std::size_t run(const world_settings& settings, const script& steps) {
  world(settings).run(steps);
  return steps.size();
}

const testing::model<act, world_settings> model{.name = "owner model",
                                                .act_names = act_names,
                                                .random_script = random_script,
                                                .random_settings = random_settings,
                                                .run = run};

}  // namespace

TEST_CASE("no order of events loses a batch, starts two owners, or leaves the end of the run unreported") {
  testing::explore(model);
}

TEST_CASE("the owner's model test finds an injected bug") {
  world_settings settings;
  settings.forgets_losses = true;
  CHECK(testing::finds_a_mistake(model, settings));
}
