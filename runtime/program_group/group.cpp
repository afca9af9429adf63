// Group, the public face of program_group (penstock/group.hpp).
#include "runtime/base/home_process.hpp"
#include "runtime/base/launcher_environment.hpp"
#include "runtime/base/patient_deadline.hpp"
#include "runtime/base/result.hpp"
#include "runtime/base/units.hpp"
#include "runtime/group/this_process.hpp"
#include "runtime/nccl/program_communicator.hpp"
#include "runtime/program_group/program_group.hpp"

#include <penstock/group.hpp>

#include <fmt/format.h>

#include <atomic>
#include <exception>
#include <mutex>

namespace penstock {
namespace {

using namespace std::chrono_literals;
using group::collective_kind;
using group::program_group_news;

constexpr auto looked_every = 50ms;
constexpr std::chrono::milliseconds at_any_time = std::chrono::hours(24 * 365);

steady_time now() {
  return std::chrono::steady_clock::now();
}

steady_time after(std::chrono::milliseconds time) {
  return now() + std::min(time, at_any_time);
}

std::string ranks_text(const std::vector<std::uint32_t>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

/// The settings that the ranks compare.
std::vector<std::pair<std::string, std::string>> settings_of(const group_options& options) {
  const group_config& g = options.settings;
  const bool waits = g.on_lost_rank == lost_rank_rule::wait;
  std::vector<std::pair<std::string, std::string>> all{
      {"the version of penstock", PENSTOCK_VERSION},
      {"group.on_lost_rank", waits ? "wait" : "fail"},
      {"group.lost_after", duration_as_config(g.lost_after)},
      {"group.communicator", g.communicator == communicator_kind::nccl ? "nccl" : "none"}};
  if (!waits)
    all.emplace_back("the number of completed collective operations", std::to_string(options.collectives));
  all.insert(all.end(), options.agree.begin(), options.agree.end());
  return all;
}

group::program_group_setup setup_of(const group_options& options, const launcher_place& place,
                                    const std::shared_ptr<group::program_communicator>& communicator) {
  // The prefix separates this group from that of a session with the same name.
  group::program_group_setup setup{
      value_or_throw(group::setup_of(options.settings, place, "program:" + options.name)), options.name,
      options.collectives, communicator};
  setup.member.card.settings = settings_of(options);
  if (communicator) setup.member.card.device = communicator->device();
  setup.group.common_steps = false;
  setup.member.needs_others = true;
  return setup;
}

void throw_if_over(const program_group_news& news) {
  if (news.refused) throw error(*news.refused);
  if (!news.end || news.end->how != group::group_outcome::failed) return;
  throw error({errc::group_failed, news.end->cause ? in_words(*news.end->cause) : "the group has failed", 0});
}

}  // namespace

class Group::body {
 public:
  explicit body(group_options options)
      : options_(std::move(options)),
        place_(value_or_throw(required_launcher_place(group::variable_of_this_process))),
        communicator_(open_communicator()),
        group_(value_or_throw(group::program_group::begin(setup_of(options_, place_, communicator_)))) {
    try {
      join();
    } catch (const std::exception& why) {
      // The caller interrupted the wait, or the group has failed. Either way, the other
      // ranks must not wait for us.
      group_->fail(fmt::format("gave up joining: {}", why.what()));
      leave(at_any_time);
      throw;
    } catch (...) {
      group_->fail("gave up joining");
      leave(at_any_time);
      throw;
    }
  }

  [[nodiscard]] const home_process& process() const noexcept { return process_; }
  [[nodiscard]] const launcher_place& place() const noexcept { return place_; }
  [[nodiscard]] program_group_news news() const {
    const auto group = living();
    return group ? group->news() : last_news_;
  }
  [[nodiscard]] Communicator* communicator() const noexcept { return communicator_.get(); }
  void fail(const std::string& why) {
    if (const auto group = living()) group->fail(why);
  }
  void check() const { throw_if_over(news()); }

  group::shared_collective_result collect(collective_kind what, std::string value,
                                          std::chrono::milliseconds deadline) {
    const only_one here(busy_, "two threads are in collective operations of one group at the same time");
    if (closed_) throw error({errc::usage, "this group was closed", 0});
    const std::size_t most = group::collective_bytes_max(place_.world_size);
    if (value.size() > most) {
      throw error({errc::usage,
                   fmt::format("all_gather: this rank passes {} bytes, but at most {} are allowed in a group "
                               "of {}: all_gather is for control data, not for tensors",
                               value.size(), most, place_.world_size),
                   0});
    }
    enter(what, std::move(value));
    const std::uint64_t number = open_->number;
    const nanoseconds limit = std::min(deadline, at_any_time);
    patient_deadline waited(limit, looked_every);  // does not count suspensions of this process
    waited.restart(now());
    program_group_news news;
    while (true) {
      const auto over = [&](const program_group_news& one) {
        return one.collectives_done >= number || one.end.has_value() || one.refused.has_value();
      };
      const nanoseconds left = limit - waited.counted();
      const bool settled = group_->wait(now() + std::min<nanoseconds>(left, looked_every), over);
      news = group_->news();
      if (settled) break;
      if (waited.is_over(now()) || left <= nanoseconds(0)) throw_timed_out(news, deadline);
      if (options_.while_waiting) options_.while_waiting();
    }
    if (news.collectives_done < number) {
      throw_if_over(news);
      throw error({errc::group_failed, "the group is over", 0});
    }
    open_.reset();
    return news.result;
  }

  /// Returns false if other ranks have not left within `at_most`.
  bool close(std::chrono::milliseconds at_most) noexcept {
    const std::lock_guard alone(closing_);
    if (!group_) return true;
    closed_ = true;
    if (std::uncaught_exceptions() > exceptions_ && !group_->news().end)
      group_->fail("an exception in the program ended its use of the group");
    if (!leave(at_most)) return false;
    // Free the place for another group of this name. Another thread may still be querying this one.
    const program_group_news last = group_->news();
    const std::lock_guard hold(mutex_);
    last_news_ = last;
    group_.reset();
    return true;
  }

 private:
  /// Null after close().
  [[nodiscard]] std::shared_ptr<group::program_group> living() const {
    const std::lock_guard hold(mutex_);
    return group_;
  }

  /// Placed in a function that only one thread may run at a time: throws in a second thread.
  class only_one {
   public:
    only_one(std::atomic<bool>& taken, const char* refusal) : taken_(taken) {
      if (taken_.exchange(true)) throw error({errc::usage, refusal, 0});
    }
    ~only_one() { taken_ = false; }
    only_one(const only_one&) = delete;
    only_one& operator=(const only_one&) = delete;

   private:
    std::atomic<bool>& taken_;
  };
  struct open_operation {
    std::uint64_t number = 0;
    collective_kind what = collective_kind::barrier;
    std::string value{};
  };

  /// Null if no communicator was requested.
  std::shared_ptr<group::program_communicator> open_communicator() {
    const group_config& g = options_.settings;
    if (g.communicator == communicator_kind::none) return nullptr;
    group::program_communicator::deps around;
    around.rank = place_.rank;
    around.world_size = place_.world_size;
    if (const auto local = local_rank_of(place_)) around.local_rank = *local;
    around.limits = {g.join_timeout, g.abort_timeout};
    around.patience = 2 * g.join_timeout;  // also long enough to learn why a communicator could not be made
    if (g.on_lost_rank == lost_rank_rule::wait) around.patience += g.rejoin_timeout;
    around.check = [this] {
      process_.require("Group");
      check();
      if (closed_) throw error({errc::usage, "this group was closed", 0});
    };
    around.while_waiting = options_.while_waiting;
    return value_or_throw(group::program_communicator::open(std::move(around)));
  }

  void join() {
    while (true) {
      const auto settled = [](const program_group_news& one) { return one.joined || one.end || one.refused; };
      if (group_->wait(now() + looked_every, settled)) break;
      if (options_.while_waiting) options_.while_waiting();
    }
    throw_if_over(group_->news());
  }

  void enter(collective_kind what, std::string value) {
    if (open_) {
      if (open_->what == what && open_->value == value) return;
      throw error(
          {errc::usage,
           fmt::format("collective operation {}, {}, is not complete yet: the next call must repeat it",
                       open_->number, name_of(open_->what)),
           0});
    }
    const program_group_news news = group_->news();
    throw_if_over(news);
    open_ = open_operation{news.collectives_done + 1, what, value};
    group_->enter(what, std::move(value));
  }

  [[noreturn]] void throw_timed_out(const program_group_news& news,
                                    std::chrono::milliseconds deadline) const {
    std::string who = "no answer from rank 0";
    if (!news.not_entered.empty()) who = fmt::format("not entered by {}", ranks_text(news.not_entered));
    if (!news.lost.empty()) who += fmt::format("; lost: {}", ranks_text(news.lost));
    throw error(
        {errc::timed_out,
         fmt::format("collective operation {}, {}, of the group '{}' was not complete within {}: {}",
                     open_->number, name_of(open_->what), options_.name, duration_as_config(deadline), who),
         0});
  }

  /// Tells the other ranks what they must know. Rank 0 also waits as long as they need it. Returns false if
  /// `at_most` passes first: the next call continues.
  bool leave(std::chrono::milliseconds at_most) noexcept {
    const steady_time until = after(at_most);
    group_->leave();
    if (!group_->wait(until, [](const program_group_news& one) { return one.may_go; })) return false;
    if (!communicator_) return true;
    communicator_->close();
    return communicator_->wait_until_gone(until);
  }

  const home_process process_;
  const group_options options_;
  const launcher_place place_;
  const int exceptions_ = std::uncaught_exceptions();
  mutable std::mutex mutex_;  // guards group_'s end and last_news_
  std::mutex closing_;        // close() holds it while waiting, so lock it before mutex_
  std::shared_ptr<group::program_communicator> communicator_;  // null: the group has none
  std::shared_ptr<group::program_group> group_;                // null after close()
  program_group_news last_news_;
  std::optional<open_operation> open_;
  std::atomic<bool> busy_ = false;
  std::atomic<bool> closed_ = false;
};

Group::Group(group_options options) : body_(std::make_unique<body>(std::move(options))) {}

Group::~Group() {
  // A forked child has no thread that could send anything, so leak the body on purpose.
  if (body_ && body_->process().left()) static_cast<void>(body_.release());
  if (body_) body_->close(at_any_time);
}
Group::Group(Group&&) noexcept = default;
Group& Group::operator=(Group&& other) noexcept {
  Group taken(std::move(other));
  std::swap(body_, taken.body_);  // our old body is destroyed with it
  return *this;
}

Group::body& Group::held() const {
  if (!body_) throw error({errc::usage, "this Group was moved to another object", 0});
  body_->process().require("Group");
  return *body_;
}

std::uint32_t Group::rank() const {
  return held().place().rank;
}
std::uint32_t Group::world_size() const {
  return held().place().world_size;
}
std::uint32_t Group::local_rank() const {
  return value_or_throw(local_rank_of(held().place()));
}
std::uint64_t Group::collectives() const {
  return held().news().collectives_done;
}
std::size_t Group::all_gather_max() const {
  return group::collective_bytes_max(held().place().world_size);
}

void Group::barrier(std::chrono::milliseconds deadline) {
  static_cast<void>(held().collect(collective_kind::barrier, {}, deadline));
}

std::vector<std::vector<std::byte>> Group::all_gather(std::span<const std::byte> own,
                                                      std::chrono::milliseconds deadline) {
  std::string value(reinterpret_cast<const char*>(own.data()), own.size());
  const auto result = held().collect(collective_kind::all_gather, std::move(value), deadline);
  std::vector<std::vector<std::byte>> all;
  all.reserve(result->values.size());
  for (const std::string& one : result->values) {
    const auto* const begin = reinterpret_cast<const std::byte*>(one.data());
    all.emplace_back(begin, begin + one.size());
  }
  return all;
}

void Group::check() const {
  held().check();
}
Communicator* Group::communicator() const noexcept {
  return body_ ? body_->communicator() : nullptr;
}
void Group::fail(const std::string& why) {
  held().fail(why);
}
void Group::close() noexcept {
  static_cast<void>(close_within(at_any_time));
}
bool Group::close_within(std::chrono::milliseconds at_most) noexcept {
  return !body_ || body_->process().left() || body_->close(at_most);
}

}  // namespace penstock
